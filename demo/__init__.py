"""`make demo`: real consumers survive restarts, crashes and the death of their coordinator, and the log says why.

The story (`story.py`) is played by `members.py`, with the two member programs, and `coordinator.py`; `children.py` runs
their processes, and `stage.py` prints it. The demo uses Muster as its users do, through the `muster` command and
Kafka's protocol.

Every consumer is a separate process, so that it can be killed. It reports the events of its client library as lines of
JSON (`reports.py`); each claim of the story is checked against these reports and against the event log.
"""
