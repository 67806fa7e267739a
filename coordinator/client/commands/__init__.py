"""Commands beside `muster serve`.

members_cli.py      `muster members`
moving_cli.py       `muster adopt`, `muster release`
groups_cli.py       `muster groups repair`, `muster groups shadows`
status_cli.py       `muster status`
status_asking.py    Asking a process at its --metrics address, and what to do where none answers.
status_findings.py  The findings: each names a problem, and the way out.
status_table.py     The tables of `muster status`, for 80 columns.
config_check.py     The output of `muster config check`: each setting, its value, and its source.
log_cli.py          `muster log repair`, `muster log upgrade`
log_repair.py       Repairing an event log with an owner's record that cannot be read and stops its partition.
log_upgrade.py      Upgrading an event log to the format level of this version.
answer.py           Options that commands share, running one request, and printing its result or error.
view.py             Tables for people, JSON for programs.
"""
