"""One group in simulated time: its processes, its coordinator, and the way between them.

world.py        time, requests and answers
outages.py      what happens to the coordinator and to the network
view.py         the rebalances, as the world sees them, and whose they are
process.py      one consumer process
assignors.py    what a leader makes of its members
client.py       how a process is configured, where a group lives, and the requests of a client library
rules.py        the coordinator of one group: the rules, and the history that its log tells
truth.py        an incident while it is being done, and what is left of it
"""
