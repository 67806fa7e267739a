"""Finds recorded silences that are longer than a shorter session timeout, and notes what is not recorded.

Each event of a member has its longest silence since its previous event. It may include time in which a request of the
member was parked, or the coordinator was paused: no session ends then, so the relevant silence may be shorter by that
time. Silences since a member's last event, and those before a takeover, are not in the log.
"""

from collections.abc import Iterator

from muster.events.causes import Cause
from muster.events.events import (
    AnyMemberEvent,
    CoordinatorPaused,
    CoordinatorReady,
    GroupDeleted,
    GroupStabilized,
    JoinPhaseCompleted,
    MemberAssigned,
    MemberEvent,
    MemberRemoved,
    StaticMemberReplaced,
)
from muster.events.ids import MemberId
from muster.events.state import Group
from muster.replay.history.clock import BEGIN, ClockReading, SteadyClock
from muster.replay.history.items import Coordinated, Happened, Item
from muster.replay.incidents.evidence.naming import process_name
from muster.replay.incidents.grade import Grade
from muster.replay.text.grammar import plural
from muster.replay.text.times import duration, instant, setting
from muster.replay.whatif.verdict import Additional, Verdict


class Silences:
    """The fold over the items of a history. `group`, `clock`: their state before the first item."""

    def __init__(
        self,
        session_timeout_ms: int,
        group: Group | None = None,
        clock: ClockReading = BEGIN,
        *,
        rebalance_timeout_ms: int | None = None,
    ) -> None:
        self.takeovers = 0
        self._rebalance_timeout_ms = rebalance_timeout_ms
        self._is_poll_sooner = False
        self._clock = SteadyClock(clock)
        self._session_timeout_ms = session_timeout_ms
        self._since_ms: dict[MemberId, int] = {}  # time of each member's last event
        self._parked_ms: dict[MemberId, int] = {}  # how long requests were parked since then
        self._waiting: dict[MemberId, int] = {}  # since when a request is parked
        self._is_shorter = False
        if group is not None:
            self._since_ms = dict.fromkeys(group.members, group.image.state_since_ms)

    @property
    def notes(self) -> Iterator[str]:
        """Notes on what the log lacks; none unless a session timeout, or the time between polls, would be shorter."""
        if self._is_poll_sooner:
            yield (
                "a client that does not poll within its max.poll.interval.ms (its rebalance timeout) leaves and comes"
                " back, two rebalances each time: the log does not show how often that would have happened with a"
                " shorter one"
            )
        if not self._is_shorter:
            return
        yield (
            "the log has each member's longest silence up to its last event; how long"
            f" {plural(len(self._since_ms), 'member')} fell silent after that is not known"
        )
        if self.takeovers:
            yield f"{plural(self.takeovers, 'takeover')} cut off what was known about silences"

    def feed(self, item: Item) -> Additional | None:
        """Process the next item; return the rebalance that a silence before it would have led to."""
        if isinstance(item, Coordinated):
            self.takeovers += isinstance(item.event, CoordinatorReady) and bool(self._since_ms)
            if isinstance(item.event, CoordinatorPaused):
                for member_id in self._since_ms.keys() - self._waiting.keys():
                    self._parked_ms[member_id] = self._parked_ms.get(member_id, 0) + item.event.late_ms
        if not isinstance(item, Happened):
            return None
        event, _ = self._clock.steadied(item.event)
        if isinstance(event, MemberEvent):
            return self._of_member(event)
        if isinstance(event, JoinPhaseCompleted | GroupStabilized):
            for member_id, since_ms in self._waiting.items():
                parked_ms = self._parked_ms.get(member_id, 0)
                self._parked_ms[member_id] = parked_ms + max(0, event.why.decided_ms - since_ms)
            self._waiting.clear()
        elif isinstance(event, GroupDeleted):
            self._since_ms.clear()
        return None

    def _of_member(self, event: AnyMemberEvent) -> Additional | None:
        member, at_ms = event.member, event.why.decided_ms
        former = event.replaced_member_id if isinstance(event, StaticMemberReplaced) else member.member_id
        since_ms = self._since_ms.pop(former, member.joined_ms)
        parked_ms = self._parked_ms.pop(former, 0)
        self._waiting.pop(former, None)
        is_shorter = self._session_timeout_ms < member.session_timeout_ms
        self._is_shorter = self._is_shorter or is_shorter
        is_recorded = member.rebalance_timeout_ms != member.session_timeout_ms
        if self._rebalance_timeout_ms is not None and is_recorded:
            self._is_poll_sooner |= self._rebalance_timeout_ms < member.rebalance_timeout_ms
        if not isinstance(event, MemberRemoved):
            self._since_ms[member.member_id] = at_ms
            self._waiting[member.member_id] = event.last_seen_ms if isinstance(event, MemberAssigned) else at_ms
        if is_shorter and event.why.cause is not Cause.SESSION_EXPIRED:
            return self._silence(event, since_ms, parked_ms)
        return None

    def _silence(self, event: AnyMemberEvent, since_ms: int, parked_ms: int) -> Additional | None:
        longest_ms = event.longest_silence_ms
        if longest_ms < self._session_timeout_ms:
            return None
        is_certain = longest_ms - parked_ms >= self._session_timeout_ms
        at_ms = event.why.decided_ms
        shorter = setting(self._session_timeout_ms)
        reason = f"{process_name(event.member)} was not heard from for {duration(longest_ms)}"
        if is_certain:
            reason += f", longer than a session of {shorter}"
        else:
            reason += f"; for {duration(min(parked_ms, longest_ms))} of it no session could end here"
        return Additional(
            since=instant(min(since_ms, at_ms)),
            until=instant(at_ms),
            seq=event.seq,
            verdict=Verdict.WOULD if is_certain else Verdict.CANNOT_TELL,
            grade=Grade.RECORDED if is_certain else Grade.UNKNOWN,
            reason=reason,
        )
