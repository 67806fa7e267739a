"""The load: members of groups, each with connections of its own, which ask as clients do, and note every answer.

requests.py      the requests of a member, and the errors of their answers
clock.py         wall clock times that never step, of one process
coordinators.py  which address coordinates a group; looked up for all groups together
asking.py        one request, tried again as clients do until its answer counts
member.py        one member: joins, heartbeats, commits, or restarts again and again
load.py          all groups of a drill: formed, and asked until told to stop
"""
