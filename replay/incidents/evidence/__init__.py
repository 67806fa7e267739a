"""Evidence for an incident in words: sentences, each with the events that it cites and its grade.

waiting.py        Join phases that went on after all others had joined, and whom they waited for.
former_process.py Had the process ended that had an instance id before?
connection_ends.py   How the connections of members ended that are gone.
session_timeout.py   The session timeout for which all waited.
silence.py        When members that fell silent were last heard from.
standbys.py       Standbys that were called for members that are gone.
subscriptions.py  Partitions that members gave up, as their subscriptions say.
emptiness.py      Why a group has no members.
naming.py         How sentences name members.
poll_interval.py  Whether a member may have polled too late.
"""
