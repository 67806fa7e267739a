"""Muster's own connections to the upstream cluster, and the shadows by which it fences its groups there."""
