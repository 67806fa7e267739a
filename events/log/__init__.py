"""Where events are kept.

`base.py` is the contract; `memory.py`, `sqlite/` and `kafka/` fulfil it; `url.py` opens one by its URL.
"""
