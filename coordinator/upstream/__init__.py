"""Muster's own connections to the upstream cluster, and the shadows that keep its groups there."""
