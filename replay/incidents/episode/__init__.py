"""An episode: the part of a group's history between two quiet times, and the facts about it that kinds of incidents
need.

episode.py               The episode, and the queries that kinds of incidents make.
acts.py                  Acts: single things that happened to a member or to the group.
reading_acts.py          The acts of a transition, read from its events.
connections.py           The connections that members used, which show that two members are the same process.
memberships.py           The members at any time, and when the cluster upstream coordinated the group.
identity.py              Identifies the processes of members.
replacements.py          Pairs processes that left with those that replaced them.
coordinator_absences.py  The owners of the partition, and the times without one.
holes.py                 Missing parts of the history, and the incidents that they make uncertain.
"""
