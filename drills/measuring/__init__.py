"""The measurements: figures, computed from the members' responses and the events of the log. Pure."""
