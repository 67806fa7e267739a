"""Which groups Muster coordinates, and how a group with live members moves to or from the upstream cluster."""
