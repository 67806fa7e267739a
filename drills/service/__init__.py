"""The service that is drilled.

service.py    the service, as far as a drill needs to know it, whichever it is
local.py      processes that the drill starts and ends itself, on an event log of its own
lasting_ports.py    ports that nobody else is given while such a process is away
running.py    a running service of others, whose processes a command of the operator's restarts
process.py    one `muster serve` as a child process
leashed.py    runs `muster` and ends with whoever started it
proxy.py      a proxy of the drill's own: before a process, or between a process and its log
relay.py      relays one connection, over a network that may be cut or slow
cluster.py    the cluster of a local drill: its brokers, and a topic to subscribe
cleaning.py   deletes what a drill has made
"""
