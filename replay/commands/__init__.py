"""The commands of `muster replay`: read a log, fold it, render the result. Their options are in `replay/cli.py`.

reading.py      `groups`, `digest`, `history`, `state`, `export`.
why.py          `why`: chooses the incidents to read, and those to show.
comparing.py    `diff`, `whatif`, `verify`.
asked.py        Parses views, windows and groups; reports those that are not in the log.
opening.py      Opens the log of a command; exit codes.
output_file.py  Writes the output file.
options.py      Options that several commands have.
speaking.py     The program name that lines on stderr begin with.
"""
