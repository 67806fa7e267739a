"""The link between two processes of one event log."""
