"""`muster members`, `adopt`, `release` and `groups`: the command line of `coordinator/admin/`.

cli.py         `muster members ...`
moving.py      `muster adopt`, `muster release`
groups_cli.py  `muster groups ...`
repairing.py   `muster groups repair`
shadows.py     `muster groups shadows`
answer.py      running one request, and printing its result or error
view.py        tables for people, JSON for programs
options.py     the arguments and options that several commands have
"""
