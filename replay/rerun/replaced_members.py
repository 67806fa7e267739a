"""Who lost an instance id to another process, set up for a re-run (see `coordinator/group/duels.py`).

Claims are soft state. That the process which lost is still heard from makes the difference between a restart and a
duel, and not every such request is written: the event that follows tells which of the two it was.
"""

import msgspec

from muster.coordinator.group.soft_state import ReplacedMember
from muster.events.events import Why
from muster.events.ids import GroupInstanceId
from muster.replay.rerun.situation import PHANTOM, Situation


def set_replaced_members(situation: Situation, *, heard_again: bool) -> None:
    """Whether a former holder of the instance id was heard from."""
    why, claims = situation.why, situation.soft.replaced_members
    rivals = [id_ for id_, claim in claims.items() if claim.group_instance_id == why.group_instance_id]
    for member_id in rivals:
        seen_again_ms = why.decided_ms if heard_again else None
        claims[member_id] = msgspec.structs.replace(claims[member_id], seen_again_ms=seen_again_ms)
    if heard_again and not rivals:
        claims[PHANTOM] = _claim(why, heard_again=True)


def add_replaced_member(situation: Situation) -> None:
    """The sender had lost its instance id."""
    why = situation.why
    if why.member_id is not None and why.group_instance_id is not None:
        situation.soft.replaced_members[why.member_id] = _claim(why, heard_again=False)


def _claim(why: Why, *, heard_again: bool) -> ReplacedMember:
    return ReplacedMember(
        group_instance_id=why.group_instance_id or GroupInstanceId(""),
        seen_again_ms=why.decided_ms if heard_again else None,
    )
