"""`make demo`: real consumers live through restarts, crashes and the death of their coordinator, and the log says why.

What belongs here: a story (`story.py`), those who act in it (`members.py` and the two member programs,
`coordinator.py`), how they run (`children.py`) and how it is told (`stage.py`). What it must not know: Muster's inside.
It uses Muster as its users do, through the `muster` command and Kafka's protocol.

How it works: every consumer is a process of its own, so that it can be killed. It reports what its client library tells
it as lines of JSON (`reports.py`); each claim of the story is checked against these reports and against the event log.
"""
