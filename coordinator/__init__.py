"""The coordinator: `muster serve`, and the commands beside it. What is further down imports nothing that is further up.

cli.py, serve.py    the command line, and the start and the end of a process
commands/           `muster members`, `muster groups`, `muster log`
sidecar/            clients that reach their cluster through Muster
standalone/         clients that are connected to nothing but Muster
assembly.py            what both modes are put together from
open_files.py       how many files and sockets the process may have open
runtime/            the shell around the rules: partitions, decisions, appends, timers
offsets/            committed offsets
settings/           settings of both modes, and what they name
net/                what connections of both modes have in common
strangers.py        records in our topics that no owner wrote
observability/      metrics, log lines, health
upstream/           our own connections to the cluster behind a sidecar, and our members in its groups
admin/              the client that the commands use
wire/               Kafka's messages: kio's message <-> command, outcome
not_served.py       how requests are answered of groups that are not served
service.py          what an API's handler may ask for
group/              the rules, pure
load/               how long work shares the event loop
cluster.py          standalone mode: what clients are told of the cluster
topics.py           declared topics: what `--topic` says
clock.py, log_throttle.py, principals.py, tasks.py    small things that everybody may use
"""
