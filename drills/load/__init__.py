"""The load: members of groups, each with its own connections. They act as clients do, and record every response."""
