"""Members that fell silent before their sessions ended, and what happened to their processes.

The evidence is the same as in `why`.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from enum import Enum, auto, unique
from heapq import heappop, heappush

import msgspec

from muster.events.causes import Cause
from muster.events.events import (
    AnyEvent,
    GroupDeleted,
    GroupEmptied,
    GroupEvent,
    JoinPhaseCompleted,
    MemberJoined,
    MemberRejoined,
    MemberRemoved,
    StaticMemberReplaced,
)
from muster.events.ids import GroupId, MemberId
from muster.events.state import Group, Member, new_group
from muster.replay.history.items import Part
from muster.replay.history.transitions import Transition
from muster.replay.incidents.episode.acts import AnyAct, Came, Departure, Went
from muster.replay.incidents.episode.episode import Episode
from muster.replay.incidents.episode.reading_acts import acts_of
from muster.replay.incidents.evidence.connection_ends import Ending, ending
from muster.replay.incidents.evidence.poll_interval import may_have_left_late
from muster.replay.incidents.kinds.poll_timeout import is_poll_timeout
from muster.replay.rebalances.wording import says_something
from muster.replay.whatif.addresses import Address, address_of
from muster.replay.whatif.facts import Fact, Step

_NOTHING = new_group(GroupId(""), incarnation=0, wall_ms=0)
"""An empty group, for evidence that does not depend on the group: connections, and when members were heard from."""


class FellSilent(msgspec.Struct, frozen=True, kw_only=True):
    """A member that was removed because its session ended, due at `due_ms`. Times are wall clock ms.

    `lived_until_ms`: how long its process may have been alive. A member that waits for the response to its join, until
    the join phase is over, sends no heartbeats.
    """

    member: Member
    last_seen_ms: int
    lived_until_ms: int
    due_ms: int
    removed_ms: int


@unique
class Fate(Enum):
    """The fate of a silent member's process, as the log shows it when a member with its client id and host joins."""

    LIVED = auto()
    """The process had not ended: it was heard from again, or the new member joins on its connection."""
    ENDED = auto()
    """The process was restarted: it closed its connection, or did not use its member id while that was still valid."""
    UNKNOWN = auto()


FateOf = Callable[[Member, Member], Fate]
"""Returns the fate of a silent member's process when this other member joins."""


class Departures:
    """The departures among the steps that are read ahead, in the order in which they were read."""

    def __init__(self) -> None:
        self._fell_silent: deque[FellSilent] = deque()
        self._forgotten = 0
        self._acts: deque[AnyAct] = deque()
        self._episode: Episode | None = None  # built on demand from the acts
        self._waiting: set[MemberId] = set()  # members that joined in the join phase that is running
        self._waited_until_ms: dict[MemberId, int] = {}

    def note(self, step: Step) -> None:
        if not isinstance(step, Fact):
            return
        for event in step.events:
            self._note_waits(event)
            if isinstance(event, MemberRemoved):
                self._waiting.discard(event.member.member_id)
                waited_until_ms = self._waited_until_ms.pop(event.member.member_id, 0)
                if event.why.cause is Cause.SESSION_EXPIRED:
                    self._fell_silent.append(fell_silent(event, waited_until_ms))
        last = step.events[-1]
        if isinstance(last, GroupEvent):
            parts: tuple[Part, ...] = tuple(each for each in step.events[:-1] if not isinstance(each, GroupEvent))
            made = Transition(parts=parts, event=last, before=_NOTHING, after=_NOTHING, begins_life=False)
            self._acts += acts_of(made)
            self._episode = None

    def _note_waits(self, event: AnyEvent) -> None:
        if isinstance(event, MemberJoined | MemberRejoined | StaticMemberReplaced):
            self._waiting.add(event.member.member_id)
        elif isinstance(event, JoinPhaseCompleted):
            self._waited_until_ms |= dict.fromkeys(self._waiting, event.why.decided_ms)
            self._waiting.clear()
        elif isinstance(event, GroupEmptied | GroupDeleted):
            self._waiting.clear()
            self._waited_until_ms.clear()

    def forget(self, before_ms: int) -> None:
        """Drop members that were removed before this time."""
        while self._fell_silent and self._fell_silent[0].removed_ms < before_ms:
            self._fell_silent.popleft()
            self._forgotten += 1
        while self._acts and self._acts[0].at_ms < before_ms:
            self._acts.popleft()
            self._episode = None

    def heard_again_ms(self, member_id: MemberId) -> int | None:
        """Return when a member was heard from after its session had ended, in wall clock ms; None if not recorded."""
        return self._known().heard_again.get(member_id, (None, 0))[0]

    def fate(self, silent: MemberId, came: MemberId, at_ms: int) -> Fate:
        """Return the fate of a removed silent member's process at the time when another member joins."""
        known, heard_ms = self._known(), self.heard_again_ms(silent)
        if (heard_ms is not None and heard_ms <= at_ms) or known.connections.are_same_process(silent, came):
            return Fate.LIVED
        went = next((act for act in known.of(Went) if act.member.member_id == silent), None)
        return Fate.ENDED if went is not None and ending(known, went) is Ending.ENDED else Fate.UNKNOWN

    def fates_at(self, at_ms: int, group: Group) -> FateOf:
        """Return the function that gives the fates of silent members at this time. `group`: as it is in the log then.

        If it still has the silent member, its process had ended: a live process would have kept using its member id,
        which was valid.
        """

        def fate_of(silent: Member, came: Member) -> Fate:
            is_waited_for = silent.member_id in group.members
            return Fate.ENDED if is_waited_for else self.fate(silent.member_id, came.member_id, at_ms)

        return fate_of

    def late_polls(self) -> Iterator[tuple[MemberId, MemberId]]:
        """Yield members that left, perhaps because they had polled too late, with the members as which their processes
        came back.
        """
        known, left = self._known(), dict[Address, Went]()
        for act in known.acts:
            if isinstance(act, Went) and _may_be_late_poll(known, act):
                left[address_of(act.member)] = act
            elif isinstance(act, Came) and (went := left.pop(address_of(act.member), None)) is not None:
                yield went.member.member_id, act.member.member_id

    def _known(self) -> Episode:
        if self._episode is None:
            self._episode = Episode(None)
            self._episode.add(tuple(self._acts), _NOTHING)
        return self._episode

    def since(self, number: int) -> tuple[int, Iterator[tuple[int, FellSilent]]]:
        """Return the total, and the departures after the first `number`, numbered, latest first."""
        total = self._forgotten + len(self._fell_silent)
        more = min(total - number, len(self._fell_silent))
        return total, zip(range(total, total - more, -1), reversed(self._fell_silent), strict=False)


def _may_be_late_poll(known: Episode, went: Went) -> bool:
    """Return whether a member that left may have polled too late. If its rebalance timeout is the session timeout, its
    max.poll.interval.ms is not recorded (see `poll_interval.py`).
    """
    member = went.member
    if went.how is not Departure.LEFT or member.rebalance_timeout_ms == member.session_timeout_ms:
        return False
    if is_poll_timeout(went):
        return True
    is_unsaid = not went.why.client_reason or not says_something(went.why.client_reason)
    return is_unsaid and may_have_left_late(known, went) and ending(known, went) is not Ending.ENDED


class Falling:
    """The members that fall silent during one play: each is yielded once, at that time."""

    def __init__(self, departures: Departures, now_ms: int) -> None:
        self._departures = departures
        self._seen = 0
        self._waiting: list[tuple[int, int, FellSilent]] = []  # a heap, by the time last seen and the number
        self._silent: dict[MemberId, FellSilent] = {}
        self._now_ms = now_ms

    def until(self, at_ms: int) -> Iterator[FellSilent]:
        """Yield members that are silent at this time and were not yielded before, in the order of their silences."""
        self._seen, read = self._departures.since(self._seen)
        for number, each in read:
            if each.removed_ms >= self._now_ms:
                heappush(self._waiting, (each.last_seen_ms, number, each))
        self._now_ms = at_ms
        while self._waiting and self._waiting[0][0] < at_ms:
            each = heappop(self._waiting)[2]
            if each.removed_ms >= at_ms:
                self._silent[each.member.member_id] = each
                yield each

    def again(self, member_ids: Iterable[MemberId], at_ms: int) -> Iterator[FellSilent]:
        """Yield the silences of members that were yielded before, have become members of the play again, and are still
        silent.
        """
        for member_id in member_ids:
            each = self._silent.get(member_id)
            if each is not None and each.removed_ms >= at_ms:
                yield each


def fell_silent(event: MemberRemoved, waited_until_ms: int = 0) -> FellSilent:
    """Return the silence that ended with the member's removal."""
    return FellSilent(
        member=event.member,
        last_seen_ms=event.last_seen_ms,
        lived_until_ms=max(event.last_seen_ms, waited_until_ms),
        due_ms=event.why.arrived_ms,
        removed_ms=event.why.decided_ms,
    )
