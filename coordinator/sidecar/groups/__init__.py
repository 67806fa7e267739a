"""Which groups Muster coordinates, and how a live group is moved to or from the cluster upstream."""
