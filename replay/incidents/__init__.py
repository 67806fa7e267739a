"""Incidents: the layer above rebalances. Why did this group rebalance, as one story for all that belongs together?

telling.py    A group's steps -> its incidents, one episode after another.
episode/      A stretch of history between two times of quiet, and the acts in it.
kinds/        The kinds of incidents, in order of precedence.
evidence/     What speaks for an incident, in words.
grouping.py   An episode -> its incidents: each act and each rebalance belongs to one.
families.py   Families of kinds, which pages give a colour each.
rounds.py     The second rounds of cooperative assignors.
edges.py      Incidents that a window cuts, where the clock jumped, too.
runs.py       Things that follow each other closely.
windows.py    Every window and threshold, in one table.
cost.py       What an incident cost.
grade.py      How well a statement is known.
incident.py   The values.
"""
