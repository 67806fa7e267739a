"""The load: members of groups, each with connections of its own, which ask as clients do, and note every answer."""
