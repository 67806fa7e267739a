"""A standby that replaces a lost member, from its call until it has the partitions."""

from collections.abc import Sequence

import msgspec

from muster.events.events import MemberAssigned, MemberRemoved
from muster.events.state import Group
from muster.replay.rebalances.moves import GroupAssignment, by_topic, decode_assignment, handed_over, movement
from muster.replay.rebalances.rebalance import Happening, HappeningKind, Movement, TopicPartitions, actor, ref
from muster.replay.rebalances.wording import cause_text, count_of, name, partitions, plainly
from muster.replay.text.grammar import plural
from muster.replay.text.times import duration, instant


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """`lost` is None if the removal is not in the log, `taken` if the assignment cannot be decoded."""

    event: MemberAssigned
    lost: MemberRemoved | None
    led: bool
    taken: tuple[TopicPartitions, ...] | None
    movement: Movement | None

    def happening(
        self, *, took_over_ms: int | None = None, rebalanced: bool = False, lost_itself: bool = False
    ) -> Happening:
        """Return the call's result: the standby took over, was lost, is still being called, or a rebalance came
        first.
        """
        called_ms = self.event.why.decided_ms
        standby = f"the standby {plainly(ref(self.event.member))}"
        if took_over_ms is not None:
            took = duration(took_over_ms - called_ms)
            leads = "it leads the group now, and " if self.led else ""
            text = f"{standby} took over {self._what()} within {took}; {leads}no other member was affected"
        else:
            end = "had not asked for them when the group rebalanced" if rebalanced else "has not asked for them yet"
            text = f"{standby} was called for {self._what()}, and {'was lost itself' if lost_itself else end}"
        if self.lost is not None:
            text += f": {cause_text(self.lost.why, [actor(self.lost)])}"
        return Happening(
            kind=HappeningKind.STANDBY_CALLED,
            at=instant(called_ms),
            text=text,
            seq=self.event.seq,
            who=ref(self.event.member),
            until=instant(took_over_ms) if took_over_ms is not None else None,
            members=() if self.lost is None else (ref(self.lost.member),),
            movement=self.movement,
        )

    def _what(self) -> str:
        taken = "what" if self.taken is None else f"the {plural(count_of(self.taken), 'partition')}"
        listed = f" ({partitions(self.taken)})" if self.taken else ""
        owner = "a lost member" if self.lost is None else f"'{name(ref(self.lost.member))}'"
        return f"{taken} {owner} had{listed}" if self.taken is None else f"{taken} of {owner}{listed}"


def called(
    event: MemberAssigned, lost: Sequence[MemberRemoved], before: Group, baseline: GroupAssignment | None
) -> tuple[Call, GroupAssignment | None]:
    """Return the call and the assignment after it. The lost member is the one that had exactly the standby's
    assignment.
    """
    gone = next((part for part in lost if part.member.assignment == event.member.assignment), None)
    decoded = decode_assignment(event.member.assignment)
    after = baseline
    if baseline is not None and decoded is not None:
        after = handed_over(baseline, decoded, ref(event.member))
    call = Call(
        event=event,
        lost=gone,
        led=gone is not None and gone.member.member_id == before.leader_id,
        taken=None if decoded is None else by_topic(decoded),
        movement=movement(baseline, after) if baseline is not None and after is not None else None,
    )
    return call, after
