"""Stores of committed offsets. Offsets are no events: only the last one of each partition matters.

base.py      the contract of a store
memory.py    the cache that every store reads from, and the store of a memory log
sqlite.py    a table in the event log's own file
topic.py     a compacted topic beside the event topic
codec.py     an offset as a record of that topic
reading.py   one reading of a partition of it, which may go on
upstream.py  the store of a sidecar, which stores nothing: the cluster upstream does
open.py      the store that belongs to an event log
deleted_topics.py  refusing to start when the event topic or the offsets topic was deleted
"""
