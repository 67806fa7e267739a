"""Sets up the replaced members of a group for a rerun (see `coordinator/group/duels.py`).

Replaced members are soft state. A restart becomes a duel when the replaced process is seen again; not every request
that shows this is recorded, but the event that follows shows whether it was a restart or a duel.
"""

import msgspec

from muster.coordinator.group.soft_state import ReplacedMember
from muster.events.events import Why
from muster.events.ids import GroupInstanceId
from muster.replay.rerun.situation import PHANTOM, Situation


def set_replaced_members(situation: Situation, *, seen_again: bool) -> None:
    """Set whether a former holder of the instance id was seen again."""
    why, replaced_members = situation.why, situation.soft.replaced_members
    rivals = [id_ for id_, rival in replaced_members.items() if rival.group_instance_id == why.group_instance_id]
    for member_id in rivals:
        seen_again_ms = why.decided_ms if seen_again else None
        replaced_members[member_id] = msgspec.structs.replace(replaced_members[member_id], seen_again_ms=seen_again_ms)
    if seen_again and not rivals:
        replaced_members[PHANTOM] = _replaced(why, seen_again=True)


def add_replaced_member(situation: Situation) -> None:
    """Add the sender, which had lost its instance id."""
    why = situation.why
    if why.member_id is not None and why.group_instance_id is not None:
        situation.soft.replaced_members[why.member_id] = _replaced(why, seen_again=False)


def _replaced(why: Why, *, seen_again: bool) -> ReplacedMember:
    return ReplacedMember(
        group_instance_id=why.group_instance_id or GroupInstanceId(""),
        seen_again_ms=why.decided_ms if seen_again else None,
    )
