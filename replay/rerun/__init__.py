"""The recorded requests of a group, decided again by the rules.

inputs.py               Derives the command behind recorded events, which `rerun` and every what-if give to the rules.
leavers.py              Derives LeaveGroup from its events: the members of the request, their order and their ids.
membership_inputs.py    Derives commands of membership beyond Kafka.
replaced_members.py     Sets up the replaced members of a group (see `coordinator/group/duels.py`).
rerun.py                Runs a recorded history through the rules: the same inputs must give the same events.
situation.py            The input of a derivation, and parts of every request.
"""
