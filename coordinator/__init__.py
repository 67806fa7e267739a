"""The server. `group/` is the rules (pure), `wire/` Kafka's messages; the files beside them are the shell around both.

server.py connection.py   sockets, frames, answers in request order
wire/                     kio message <-> command, outcome
runtime.py                the partitions of this process: finding a group's, taking over, giving up
ownership.py              how one partition is taken over
partition.py              a command's way through the rules; deadlines.py: what happens when time passes
outbox.py                 what may leave only when it is durable
offsets/                  committed offsets
cluster.py                standalone mode: the topics that clients see
settings.py cli.py        how it is set and started
"""
