"""Commands beside `muster serve`."""
