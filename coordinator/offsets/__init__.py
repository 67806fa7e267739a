"""Committed offsets. They are no events: the last one of each partition is all that matters.

base.py      the contract, with what all stores share
memory.py    the cache that every store reads from, and the whole store of a memory log
sqlite.py    a table in the event log's own file
topic.py     a compacted topic beside the event topic
upstream.py  no store at all: the cluster behind a sidecar keeps them
open.py      the store that belongs to an event log
lost.py      one of two topics is gone: that of the events, or that of the offsets
"""
