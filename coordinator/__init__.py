"""The coordinator: `muster serve` and its companion commands. Modules import only what is below them in this list.

serve_cli.py, serve.py  the command line; a process from start to end
processes/              several processes of one host, under one supervisor
client/                 the admin client, and `muster members`, `status`, `groups`, `log`
sidecar/                the sidecar: clients reach their cluster through Muster
standalone/             the standalone server: clients connect to Muster alone
partition_sharing.py    wires together the parts with which several processes share one log
assembly.py             makes the parts that both modes have
open_files.py           the open-file limit, and the connection limit that follows from it
runtime/                the runtime around the rules: partitions, decisions, appends, timers
offsets/                committed offsets
settings/               settings of both modes, and the files they refer to
net/                    connections, in both modes
partition_reading.py    reading a partition, from its beginning or from where a reading stopped
log_settings_watch.py   checks the event topic's settings while it is served
foreign_records.py      finds foreign records in our topics while a partition is served, and rewrites what they
overwrote
observability/          metrics, log lines, health
upstream/               our own connections to the cluster upstream, and shadows in its groups
peers/                  several processes that share one log: which of them owns which partitions
wire/                   translates between Kafka's messages (kio) and commands, outcomes
not_served.py           responses for groups that cannot be served yet
service.py              the interface between API handlers and the runtime
group/                  the rules of consumer groups, without I/O
load/                   sharing one event loop and one memory budget
cluster.py              standalone: the cluster metadata that clients see
topics.py               standalone: declared topics (`--topic`)
garbage.py              tunes Python's garbage collector
random_uuids.py         random UUIDs for the ids of members
clock.py, log_throttle.py, principals.py, tasks.py    small helpers used everywhere
"""
