"""`muster drill`: failover exercises on a real cluster, with temporary groups that the drill creates.

A drill has a load (members that join, send heartbeats and commit with Kafka's protocol), a fault, and a report: which
errors the members saw, how long they waited for responses, which rebalances the fault caused, and whether anything that
was acknowledged is missing. Only the command line imports this package.

cli.py        the commands and their options
start.py      turns the options into a drill: the plan, and the fault
command.py    runs one drill: progress, errors, the report, exit codes, Ctrl-C
drill.py      the steps of a drill in order: prepare, load, fault, check, clean up
plan.py       the options as given, the plan made from them, and the errors that end a drill
names.py      the names of a drill's groups and topics, and the refusal of all others
faults.py     the kinds of faults
service/      the service under test: processes that the drill starts, or a running service
load/         the members, each with its own connections
checking.py   reads the log and queries the service after the fault
measuring/    measurements, computed from responses and events; pure
report/       the report: values, table, page
"""
