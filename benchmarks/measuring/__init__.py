"""The load of the benchmarks, and the servers that bear it.

wire.py        raw requests over one connection
groups.py      groups of raw members; joins.py: one more joins; populous.py: very many, for their memory
heartbeats.py  floods, of heartbeats mostly; pings.py: one record at a time; relaying.py: Kafka's own tools
takeovers.py   groups whose coordinator is killed
scaling.py     real consumers, more and fewer
history.py     logs to read; loading.py: how fast they are read
processes.py   the cost of a process; proxies.py: another proxy to compare with
"""
