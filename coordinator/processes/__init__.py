"""One host, many cores: `muster serve --processes N` is N sidecars at the same addresses, and one that owns groups.

children.py         which processes there are, and what each is started with (pure)
supervisor.py       starts them, starts again what has ended, and stops all in good order
summed_metrics.py   the metrics of all, as those of one
"""
