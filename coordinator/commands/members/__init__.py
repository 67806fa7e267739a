"""`muster members`, `adopt`, `release` and `groups repair`: the command line of `coordinator/admin/`.

cli.py         `muster members ...`
moving.py      `muster adopt`, `muster release`
repairing.py   `muster groups repair`
answer.py      running one request, and printing its result or error
view.py        tables for people, JSON for programs
options.py     the arguments and options that several commands have
durations.py   parsing durations such as 1h30m
"""
