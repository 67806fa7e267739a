"""The commands of `muster replay`: read a log, fold it, render the result. Their options are in `replay/cli.py`.

reading.py      `groups`, `digest`, `history`, `why`, `state`, `export`.
why.py          `why`: which incidents are read, and which are shown.
comparing.py    What compares: `diff`, `whatif`, `verify`.
asked.py        Views, windows and groups that were asked for, and what to say where there is none.
opening.py      The log of a command, opened; exit codes.
output_file.py  The file that a command writes.
options.py      Options that several commands have.
speaking.py     The name that lines on stderr begin with.
"""
