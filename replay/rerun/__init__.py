"""Runs the recorded requests of a group through the rules again.

inputs.py               Reconstructs the commands behind recorded events, for `rerun` and for every what-if.
leavers.py              Reconstructs a LeaveGroup from its events: the members in the request, their order and their
                        ids.
membership_inputs.py    Reconstructs the commands behind events of Muster's own membership features.
replaced_members.py     Sets up the replaced members of a group (see `coordinator/group/duels.py`).
rerun.py                Runs a recorded history through the rules: the same inputs must give the same events.
situation.py            The input of a reconstruction, and the parts that all requests have.
"""
