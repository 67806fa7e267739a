"""Commands beside `muster serve`.

members/         `muster members`, `muster groups`, `muster adopt`, `muster release`
status_cli.py    `muster status`: its options.
status_command.py        The command itself: ask each process, show what they say, choose the exit code.
status_asking.py         Asking a process at its --metrics address, and what to do where none answers.
status_findings.py       What is wrong, by what the processes say, and the way out.
status_table.py          The tables of `muster status`, for 80 columns.
config_check.py  What `muster config check` prints: each setting, its value, and what gave it.
log_cli.py       `muster log repair` and `muster log upgrade`: their options.
log_access.py    What the two share: running to the end, security, opening, and who may be serving the log.
log_repair_command.py    The command itself: show the records that stop a partition, ask, and write tombstones.
log_repair.py    Repairing an event log with an owner's record that cannot be read and stops its partition.
log_upgrade_command.py   The command itself: say what it does, ask, and raise the format level.
log_upgrade.py   Upgrading an event log to the format level of this version.
"""
