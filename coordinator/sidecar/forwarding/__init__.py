"""Several sidecars of one event log: a request for a group goes to the process that owns it, and its answer back.

edge.py                where clients are connected: which requests are forwarded, and what becomes of them
owners.py              the owners as that one reaches them: requests sent, their outcomes, questions to the broker
group_apis.py          which APIs name groups, and how a request for groups of several owners is split (pure)
owner.py               where groups are owned: handles forwarded requests as those of its own clients
granted.py             heartbeats that this one answers itself, by the word of the owner
forwarded_client.py    a client of another process, as the handlers see it
paced.py               what many clients are told at once, some at a time
shared_ownership.py    shadows and moves, when partitions come and go
reach.py               which owners are reached, and since when none is
assembly.py            the assembly of all that
"""
