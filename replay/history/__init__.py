"""The history of a group as a value, in the order of the log.

items.py        The items of a history: events, and markers for missing parts.
transitions.py  Folds a history into transitions, with the group before and after each.
clock.py        Event times without jumps of the wall clock.
wrong_times.py  Finds times that go backwards, and the times to look such events up by.
skim.py         Reads a history without decoding most of it, and makes checkpoints to start a full read from.
wording.py      Describes missing parts and clock jumps.
window.py       The part of a history that a command shows.
"""
