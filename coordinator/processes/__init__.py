"""One host, many cores: `muster serve --processes N` is N sidecars at the same addresses, and one that owns groups."""
