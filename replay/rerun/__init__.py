"""The recorded requests of a group, decided again by the rules.

replaced_members.py               Who lost an instance id to another process, set up for a re-run (see
                        `coordinator/group/duels.py`).
inputs.py               From events back to the command that led to them: what `rerun` and every what-if feed to the
                        rules.
leavers.py              LeaveGroup derived from its events: who was in the request, in which order, with which ids.
membership_inputs.py    From events of the membership beyond Kafka back to the command that led to them.
rerun.py                A recorded history through the rules again: the same inputs must give the same events.
situation.py            What a re-run knows when it looks for the command behind an event, and the words it needs
                        for every request.
"""
