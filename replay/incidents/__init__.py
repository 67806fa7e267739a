"""Groups related rebalances and events into incidents, each with one explanation of why the group rebalanced.

telling.py    Folds a group's history into incidents, one episode after another.
episode/      A part of the history between two quiet times, and the acts in it.
kinds/        The kinds of incidents, in order of precedence.
evidence/     The evidence for an incident, as sentences.
grouping.py   Divides an episode into incidents; each act and each rebalance belongs to one.
families.py   Families of kinds; each has a colour on the report pages.
rounds.py     Rebalances that continue the previous one, such as a cooperative assignor's second round.
edges.py      Incidents that cross the edges of a window, even if the clock jumped.
runs.py       Groups items that follow each other closely.
windows.py    All time windows and thresholds.
cost.py       The cost of an incident.
grade.py      How certain a statement is.
incident.py   The values.
"""
