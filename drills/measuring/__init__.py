"""The measuring: figures, made of the members' answers and of the log's events. Pure.

asked.py      a request with all its attempts, as a member saw it
waits.py      how long each kind of request waited, before the fault and from it on
noticed.py    the errors that a member has to act on, and those that its client hides
takeovers.py  the phases of each partition's takeover
losses.py     what was acknowledged, compared with what is there
goals.py      the goals, and whether they are met
"""
