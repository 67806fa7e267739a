"""The commands other than `muster serve`."""
