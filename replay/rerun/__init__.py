"""Runs the recorded requests of a group through the rules again.

inputs.py               Derives the command behind recorded events, for `rerun` and for every what-if.
leavers.py              Derives LeaveGroup from its events: the members of the request, their order and their ids.
membership_inputs.py    Derives the commands of Muster's own membership features.
replaced_members.py     Sets up the replaced members of a group (see `coordinator/group/duels.py`).
rerun.py                Runs a recorded history through the rules: the same inputs must give the same events.
situation.py            The input of a derivation, and parts of every request.
"""
