"""The members of a group, for administrators at a terminal. A skin over `coordinator/admin/`.

cli.py         `muster members ...`
moving.py      `muster adopt`, `muster release`
repairing.py   `muster groups repair`
answer.py      one question asked, and answered on the terminal
view.py        tables for eyes, JSON for programs
options.py     the arguments and options that several commands have
durations.py   durations as people write them
"""
