"""`muster drill`: failover exercises on a real cluster, with groups of the drill's own that are thrown away.

A drill has a load (members that join, heartbeat and commit through Kafka's protocol), a fault, and a report: what the
members noticed, how long they had no answer, which rebalances it caused, and whether anything that was acknowledged is
missing. Nothing imports this package but the command line.

cli.py        the commands and their options
start.py      from the options to a drill: the plan, and which fault is done to what
command.py    runs one drill: errors, progress, the report, exit codes, Ctrl-C
drill.py      the order of things: prepare, load, fault, check, clean up
plan.py       the options as they were given, the plan of a drill, and the errors that end one
names.py      the names that a drill gives its groups and topics, and the refusal of all others
faults.py     the kinds of faults
service/      the service that is drilled: processes that the drill starts, or a running one
load/         the members, each with connections of its own
checking.py   reading the log and asking the service, when the fault is over
measuring/    what was measured, made of answers and events; pure
report/       the report: values, table, page
"""
