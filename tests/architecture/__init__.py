"""docs/architecture.md: its pictures are drawn from the imports, its walks compared with calls of real processes.

pictures.py   the rooms, and which imports which
walks.py      a JoinGroup, a takeover and a `why`, file by file
traced.py     `muster` as a child process that notes the calls of a walk
"""
