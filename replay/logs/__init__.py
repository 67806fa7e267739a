"""Logs that are read: the only part that touches one.

reading.py        One reading of a log: its chunks, what cannot be read of them, what is appended meanwhile.
waiting.py        Waiting for a log that is away.
sources.py        A log read: the records of one group, or of all.
opening.py        Opening whatever `--log` names.
exported.py       Files that a log was exported to, read as logs.
export_forms.py   How records stand in such files, and stepping over what cannot be read: JSON lines.
container_form.py The same in Avro containers.
unpacking.py      Files that went through gzip, or Windows.
exports.py        Writing such files.
pseudonyms.py     A log without names.
"""
