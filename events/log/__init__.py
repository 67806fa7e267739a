"""Where events are kept.

`base.py` is the contract; `memory.py`, `sqlite.py` and `kafka.py` fulfil it; `url.py` opens one by its URL.
"""
