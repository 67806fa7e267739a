"""One host, many cores: `muster serve --processes N` is N sidecars at the same addresses, and one that owns groups.

children.py         which processes there are, and what each is started with (pure)
supervisor.py       starts them, and stops all in good order
running.py          one of them: started again when it ends
held_addresses.py    the addresses of all: waited for, and held against others
socket_store.py     its listening sockets, kept for its successor
reaping.py          what is left of others, where it is the first process of a container
summed_metrics.py   the metrics of all, as those of one
"""
