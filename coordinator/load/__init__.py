"""Sharing one event loop and one memory between requests with many entries.

current_work.py    What the event loop is working on, noted for the watchdog thread.
quotas.py          Quotas by key: connections of an address, of a principal, waiting requests.
answer_memory.py   The memory for answers that are being written.
slices.py          Slices of 5 ms, by which long work shares the event loop.
turns.py           The turns of connections within one turn of the event loop.
"""
