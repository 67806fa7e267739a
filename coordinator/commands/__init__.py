"""Commands beside `muster serve`.

members/         `muster members`, `muster groups`, `muster adopt`, `muster release`
log_cli.py       `muster log repair`: its options.
log_repair_command.py    What it does: say which records stop a partition, ask, and bury them.
log_repair.py    Repairing an event log in which an owner's record cannot be read in such a way that its partition
                 is not served.
"""
