"""The link between two processes of one event log: requests go to the process that owns the group, answers come back.

messages.py      what the processes tell each other, and its bytes
proof.py         each end proves that it has the secret, which is never sent (pure)
connection.py    one connection, either end: frames, the proof, what is written at a time
listener.py      accepts connections of the other processes
links.py         keeps a connection to each other process
"""
