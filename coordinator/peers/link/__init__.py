"""The link between two processes of one event log: requests go to the process that owns the group."""
