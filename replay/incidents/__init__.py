"""Incidents: the layer above rebalances. Why did this group rebalance, as one story for all that belongs together?

telling.py      A group's steps -> its incidents, one episode after another.
aways.py        The owners of the partition, and the times without one.
episode.py      A stretch of history between two times of quiet, and what kinds ask of it.
holes.py        The parts that are missing, and the incidents that they leave uncertain.
acts.py         The single things that happened to a process or to the group.
identity.py     Who is who: members, told apart as processes.
replacements.py Processes that went and came back.
kinds/          The kinds of incidents, in order of precedence.
grouping.py     An episode -> its incidents: each act and each rebalance belongs to one.
rounds.py       The second rounds of cooperative assignors.
edges.py        Incidents that a window cuts, where the clock jumped, too.
runs.py         Things that follow each other closely.
windows.py      Every window and threshold, in one table.
waiting.py      Join phases that went on after all others had joined, and whom they waited for.
silence.py      When members that fell silent were last heard from, in words.
standbys.py     Standbys that were called for members that are gone, in words.
emptiness.py    Why a group has no members, in words.
subscriptions.py  Partitions that members gave up, as their subscriptions say.
cost.py         What an incident cost.
naming.py       How sentences name members.
grade.py        How well a statement is known.
incident.py     The values.
"""
