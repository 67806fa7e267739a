"""Reads logs: the only part of replay that touches one.

reading.py        One reading of a log: its chunks, their unreadable parts, and what is appended meanwhile.
waiting.py        Waits for a log that is unavailable.
sources.py        Decodes a log into the history of one group, or of all.
opening.py        Opens the log that `--log` names.
exported.py       Exports of a log, read as logs.
export_forms.py   The format of JSON lines exports; skips what cannot be read.
container_form.py The format of Avro container exports.
unpacking.py      Unpacks exports that were compressed with gzip, or re-encoded by Windows.
exports.py        Writes exports.
pseudonyms.py     Replaces names by pseudonyms.
"""
