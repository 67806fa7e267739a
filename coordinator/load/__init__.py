"""How work on many entries shares one event loop and one memory.

current_work.py    What the event loop works on at this moment: written down by whoever begins it, read by the
                   thread that watches it.
quotas.py          How many of a kind each may have: connections of one address, connections of one principal,
                   requests that wait.
room.py            How much room there is for answers that are being written, in all of the process.
slices.py          Slices: how work on many entries shares the event loop with everybody else.
steps.py           Steps: work on many entries that can be paused between any two of them.
turns.py           Turns: how all connections of a process share one turn of the event loop.
"""
