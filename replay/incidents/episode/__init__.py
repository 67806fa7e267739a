"""A stretch of history between two times of quiet: what was done in it, and to whom.

episode.py       The episode, and what kinds ask of it.
acts.py          The single things that happened to a process or to the group.
connections.py   Which members spoke on one connection.
memberships.py   Who was a member at which moment, and when the cluster coordinated the group.
identity.py      Who is who: members, told apart as processes.
replacements.py  Processes that went and came back.
coordinator_absences.py   The owners of the partition, and the times without one.
holes.py         The parts that are missing, and the incidents that they leave uncertain.
"""
