"""One host, many cores: `muster serve --processes N` is N sidecars on the same addresses, and one that owns groups."""
