"""Members that fell silent: since when, as far as the log tells, before their sessions ended; and what became of their
processes, by the same evidence as in `why`.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from enum import Enum, auto, unique
from heapq import heappop, heappush

import msgspec

from muster.events.causes import Cause
from muster.events.events import GroupEvent, MemberRemoved
from muster.events.ids import GroupId, MemberId
from muster.events.state import Member, new_group
from muster.replay.history.items import Part
from muster.replay.history.transitions import Transition
from muster.replay.incidents.episode.acts import AnyAct, Went, acts_of
from muster.replay.incidents.episode.episode import Episode
from muster.replay.incidents.evidence.connection_ends import Ending, ending
from muster.replay.whatif.facts import Fact, Step

_NOTHING = new_group(GroupId(""), incarnation=0, wall_ms=0)
"""The group, for evidence that is the same whatever it was: who spoke on which connection, who was heard from."""


class FellSilent(msgspec.Struct, frozen=True, kw_only=True):
    """A member that was removed because its session ended, which was due at `due_ms`; wall clock ms."""

    member: Member
    last_seen_ms: int
    due_ms: int
    removed_ms: int


@unique
class Fate(Enum):
    """The fate of a silent member's process, as far as the log shows it when one of its client id and host joins."""

    LIVED = auto()
    """It was heard from again, or is the one that joins, on its connection: it had not ended."""
    ENDED = auto()
    """It closed its connection, or did not go on under its id while that was valid: it was restarted."""
    UNKNOWN = auto()


class Departures:
    """The departures among the steps that are looked ahead at, in the order in which they were read."""

    def __init__(self) -> None:
        self._fell_silent: deque[FellSilent] = deque()
        self._forgotten = 0
        self._acts: deque[AnyAct] = deque()
        self._episode: Episode | None = None  # of these acts; None: not made yet

    def note(self, step: Step) -> None:
        """Take in the next step."""
        if not isinstance(step, Fact):
            return
        for event in step.events:
            if isinstance(event, MemberRemoved) and event.why.cause is Cause.SESSION_EXPIRED:
                self._fell_silent.append(fell_silent(event))
        last = step.events[-1]
        if isinstance(last, GroupEvent):
            parts: tuple[Part, ...] = tuple(each for each in step.events[:-1] if not isinstance(each, GroupEvent))
            made = Transition(parts=parts, event=last, before=_NOTHING, after=_NOTHING, begins_life=False)
            self._acts += acts_of(made)
            self._episode = None

    def forget(self, before_ms: int) -> None:
        """Drop those who were removed before a moment."""
        while self._fell_silent and self._fell_silent[0].removed_ms < before_ms:
            self._fell_silent.popleft()
            self._forgotten += 1
        while self._acts and self._acts[0].at_ms < before_ms:
            self._acts.popleft()
            self._episode = None

    def heard_again_ms(self, member_id: MemberId) -> int | None:
        """When a member was heard from after its session had ended, wall clock ms; None: that is not recorded."""
        return self._known().heard_again.get(member_id, (None, 0))[0]

    def fate(self, silent: MemberId, came: MemberId, at_ms: int) -> Fate:
        """The fate of the process of a silent member that the log has no longer, when another one joins."""
        known, heard_ms = self._known(), self.heard_again_ms(silent)
        if (heard_ms is not None and heard_ms <= at_ms) or known.connections.are_same_process(silent, came):
            return Fate.LIVED
        went = next((act for act in known.of(Went) if act.member.member_id == silent), None)
        return Fate.ENDED if went is not None and ending(known, went) is Ending.ENDED else Fate.UNKNOWN

    def _known(self) -> Episode:
        if self._episode is None:
            self._episode = Episode(None)
            self._episode.add(tuple(self._acts), _NOTHING)
        return self._episode

    def since(self, number: int) -> tuple[int, Iterator[tuple[int, FellSilent]]]:
        """Return the departures after the first `number`, numbered, the last first; and how many there are in all."""
        total = self._forgotten + len(self._fell_silent)
        more = min(total - number, len(self._fell_silent))
        return total, zip(range(total, total - more, -1), reversed(self._fell_silent), strict=False)


class Falling:
    """The members who fall silent while one play goes on: each is given once, when it is time."""

    def __init__(self, departures: Departures, now_ms: int) -> None:
        self._departures = departures
        self._seen = 0
        self._waiting: list[tuple[int, int, FellSilent]] = []  # a heap, by when each was last seen, and number
        self._silent: dict[MemberId, FellSilent] = {}
        self._now_ms = now_ms

    def until(self, at_ms: int) -> Iterator[FellSilent]:
        """Yield the members who are silent at a moment and were not given, in the order in which they fell silent."""
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
        """Yield those of these members who were given and are to stay silent: they are members again in the play."""
        for member_id in member_ids:
            each = self._silent.get(member_id)
            if each is not None and each.removed_ms >= at_ms:
                yield each


def fell_silent(event: MemberRemoved) -> FellSilent:
    """The silence that ended with the member's removal."""
    return FellSilent(
        member=event.member,
        last_seen_ms=event.last_seen_ms,
        due_ms=event.why.arrived_ms,
        removed_ms=event.why.decided_ms,
    )
