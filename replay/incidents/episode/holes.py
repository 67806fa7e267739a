"""Missing or unreadable parts of a history, and the incidents that they make uncertain."""

from collections.abc import Iterable, Sequence

import msgspec

from muster.replay.history.items import Broken, Gap
from muster.replay.incidents.episode.acts import AnyAct, Came, Went
from muster.replay.incidents.windows import REPLACED_MS
from muster.replay.rebalances.rebalance import Outcome, Rebalance


class Hole(msgspec.Struct, frozen=True, kw_only=True):
    """A missing part after the event `after_seq`; it lies between `from_ms` and `to_ms` (wall clock)."""

    part: Gap | Broken
    after_seq: int
    from_ms: int
    to_ms: int

    def joined(self, following: "Hole") -> "Hole":
        """Return one hole for this and the following one; both are unreadable records."""
        assert isinstance(self.part, Broken)
        assert isinstance(following.part, Broken)
        return msgspec.structs.replace(
            self,
            part=self.part.joined(following.part),
            from_ms=min(self.from_ms, following.from_ms),
            to_ms=max(self.to_ms, following.to_ms),
        )

    def is_within(self, from_ms: int, to_ms: int | None) -> bool:
        """Return whether the hole overlaps this time; None: to the end of the history."""
        return self.to_ms >= from_ms and (to_ms is None or self.from_ms <= to_ms)


def is_within_events(hole: Hole, acts: Iterable[AnyAct], rebalances: Sequence[Rebalance]) -> bool:
    """Return whether the hole is between the first and the last of these events, or in a running rebalance."""
    first = [*(act.seq for act in acts), *(each.first_seq for each in rebalances)]
    last = [*first, *(each.last_seq for each in rebalances)]
    is_running = any(each.outcome is Outcome.RUNNING for each in rebalances)
    return bool(first) and min(first) <= hole.after_seq and (is_running or hole.after_seq < max(last))


def may_hide_other_half(hole: Hole, act: AnyAct) -> bool:
    """Return whether the hole may hide the other half of a replacement: the join after a leave, or the leave after a
    join.
    """
    if isinstance(act, Went):
        return hole.is_within(act.at_ms, act.at_ms + REPLACED_MS)
    return isinstance(act, Came) and hole.is_within(act.at_ms - REPLACED_MS, act.at_ms)
