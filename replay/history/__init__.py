"""The history of a group as a value, in the order of the log.

items.py        What happened to one group, and what is missing of it.
transitions.py  A history as transitions, with the group before and after each.
clock.py        The wall clock as if it had not jumped.
wrong_times.py  Times that fall, and the times by which events are found then.
skim.py         A history passed over undecoded, and the checkpoints from which it can be told.
wording.py      Words for what it lacks.
window.py       From when and until when a history is told.
"""
