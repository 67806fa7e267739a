"""Committed offsets. They are no events: the last one of each partition is all that matters.

`base.py` is the contract, with what all stores share; the others keep offsets in memory, in the SQLite file of the
event log, or in a compacted topic of their own.
"""
