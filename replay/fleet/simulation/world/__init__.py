"""One group in simulated time: its processes, its coordinator, and the network between them.

world.py        time, requests and responses
outages.py      outages of the coordinator and the network
view.py         the rebalances as the simulated world sees them, and which incident each belongs to
process.py      one consumer process
assignors.py    the leader's assignors
client.py       a process's configuration, a group's place and time, and the requests of a client library
rules.py        the coordinator of one group: the rules, and the log
truth.py        an incident while it happens, and its ground truth
"""
