"""The link between two processes of one event log, on which requests are forwarded to the owner of the group."""
