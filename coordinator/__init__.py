"""The coordinator: `muster serve`, and the commands beside it. What is further down imports nothing that is further up.

serve_cli.py, serve.py    the command line; a process from start to end
processes/          several processes of one host, under one supervisor
client/             the client for administrators, and `muster members`, `status`, `groups`, `log`
sidecar/            the sidecar: clients reach their cluster through Muster
standalone/         the standalone server: clients are connected to Muster alone
partition_sharing.py    several processes of one log: the assembly
assembly.py         making the parts that both modes have
open_files.py       the limit of open files, and so of connections
runtime/            the runtime around the rules: partitions, decisions, appends, timers
offsets/            committed offsets
settings/           settings of both modes, and what they name
net/                connections, in both modes
partition_reading.py    reading a partition, from its beginning or on from where one is
log_settings_watch.py   the event topic's settings, looked at while it is served
strangers_watch.py  records in our topics that no owner wrote: found while a partition is served, and rewritten
observability/      metrics, log lines, health
upstream/           our own connections to the cluster upstream, and shadows in its groups
peers/              several processes of one log: which of them owns which partitions
wire/               Kafka's messages: kio's message <-> command, outcome
not_served.py       answers for groups that cannot be served at the moment
service.py          the interface between API handlers and the runtime
group/              the rules, pure
load/               sharing one event loop and one memory
cluster.py          standalone: the cluster as clients see it
topics.py           standalone: declared topics (`--topic`)
clock.py, log_throttle.py, principals.py, tasks.py    small things that everybody may use
"""
