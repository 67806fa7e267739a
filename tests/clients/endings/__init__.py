"""Ends of real clients, as a coordinator sees them at its socket: `python -m tests.clients.endings`.

An experiment, outside CI: a real client of each family is ended in each way, and everything that arrives at the
coordinator's socket is recorded. `docs/clients.md` has the result.

given.py       the families, the acts, and a client's settings
programs.py    each family's program and its version
member.py      the program of the families in Python; those in Java and Go are in `tests/clients/foreign/`
process.py     one such process
recorder.py    a forwarder in front of the coordinator, which records requests and how connections end
frames.py      requests and responses, as far as needed here
places.py      where clients run: on this host, behind a proxy, in a network namespace that can be cut off
acts.py        what is done to a client, and how long it is observed
facts.py       the observations, as numbers and words
recorded.py    the facts of the last run, in a file
page.py        the tables of `docs/clients.md`
"""
