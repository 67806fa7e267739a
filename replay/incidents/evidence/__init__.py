"""The evidence for an incident: sentences, each with its grade and the events that it cites.

waiting.py          Phases that were prolonged, and the members that they waited for.
former_process.py   Determines whether the former process of an instance id had ended.
connection_ends.py  How the connections of lost members ended.
session_timeout.py  Advice on a session timeout that made others wait.
silence.py          When silent members were last heard from.
standbys.py         Standbys that were called for lost members.
subscriptions.py    Partitions that members gave up, according to their subscriptions.
emptiness.py        Why a group has no members.
naming.py           How sentences name members.
poll_interval.py    Determines whether a lost member may have polled too late, and gives advice if so.
"""
