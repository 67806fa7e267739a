"""Commands beside `muster serve`.

members/         `muster members`, `muster groups`, `muster adopt`, `muster release`
log_cli.py       `muster log repair`: its options.
log_repair_command.py    The command itself: show the records that stop a partition, ask, and write tombstones.
log_repair.py    Repairing an event log with an owner's record that cannot be read and stops its partition.
"""
