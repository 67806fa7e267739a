"""The load of the benchmarks, and the servers under test.

wire.py        raw requests over one connection
groups.py      groups of raw members; joins.py: an additional member joins; populous.py: very many, to measure memory
heartbeats.py  floods, mostly of heartbeats; pings.py: one record at a time; relaying.py: Kafka's own tools
takeovers.py   groups whose coordinator is killed
scaling.py     real consumers, scaled up and down
history.py     logs to read; loading.py: how fast they are read
processes.py   the cost of a process; proxies.py: another proxy to compare with
"""
