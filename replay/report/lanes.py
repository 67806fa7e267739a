"""Lifetimes -> a lane for each process, identified by instance id, else by client id and host, else by member id."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import TypeVar

from muster.events.ids import MemberId
from muster.events.state import Member
from muster.replay.html.chart import SpanOnPage
from muster.replay.html.document import shown
from muster.replay.incidents.episode.identity import Identities, Life, ProcessIdentity
from muster.replay.incidents.grade import Grade
from muster.replay.rebalances.wording import host, short_member_id
from muster.replay.report.lives import EndedLife, Lives
from muster.replay.report.page import Lane, Limits

NAME_MAX = 120
SILENCE_MIN_MS = 1_000
"""The minimum length of a silence that is drawn."""

T = TypeVar("T")


class Lanes:
    """The lanes of all known lifetimes, ordered by their start."""

    def __init__(self, lives: Lives, limits: Limits) -> None:
        ended = {each.life.member.member_id: each for each in lives.ended.kept}
        told = [*(each.life for each in lives.ended.kept), *lives.living.values()]
        identities = Identities(told)
        of_process: defaultdict[ProcessIdentity, list[Life]] = defaultdict(list)
        for life in told:
            of_process[identities.process_of(life.member)].append(life)
        self._lives = lives
        self._ended = ended
        self._stretches = _by_member(lives.stretches.last(limits.stretches))
        self._marks = _by_member(lives.marks.last(limits.stretches))
        latest = sorted(of_process.items(), key=lambda each: self._last_ms(each[1]))[-limits.lanes :]
        chosen = sorted(latest, key=_place)
        self.left_out = len(of_process) - len(chosen)
        self.lanes = tuple(self._lane(process, each) for process, each in chosen)
        self._number = {life.member.member_id: n for n, (_, each) in enumerate(chosen) for life in each}

    def number_of(self, member_id: MemberId) -> int | None:
        """Return the lane of a member; None if it is not drawn."""
        return self._number.get(member_id)

    def _last_ms(self, lives: list[Life]) -> float:
        return max(life.end_ms for life in lives)

    def _lane(self, process: ProcessIdentity, lives: list[Life]) -> Lane:
        last = lives[-1].member
        over = self._ended.get(last.member_id)
        ids = [life.member.member_id for life in lives]
        stretches = [each for member_id in ids for each in self._stretches.get(member_id, ())]
        return Lane(
            name=shown(_name(process, last), NAME_MAX),
            where=shown(_where(process, last), NAME_MAX),
            grade=process.grade,
            member_ids=len(ids),
            begin_ms=int(lives[0].begin_ms),
            end_ms=None if over is None else over.at_ms,
            ended="" if over is None else over.how,
            partitions=stretches[-1].partitions if over is None and stretches else None,
            stretches=tuple(sorted(stretches, key=lambda each: each.begin_ms)),
            silences=tuple(_silences(self._ended[each] for each in ids if each in self._ended)),
            marks=tuple(mark for member_id in ids for mark in self._marks.get(member_id, ())),
        )


def _place(told: tuple[ProcessIdentity, list[Life]]) -> tuple[float, int, str]:
    """Return the sort key of a lane: the start of its process, then its name, app-2 before app-10."""
    process, lives = told
    name = _name(process, lives[-1].member)
    return lives[0].begin_ms, len(name), name


def _name(process: ProcessIdentity, member: Member) -> str:
    if process.grade is Grade.UNKNOWN:
        return short_member_id(member.member_id)
    return member.group_instance_id or member.client_id or short_member_id(member.member_id)


def _where(process: ProcessIdentity, member: Member) -> str:
    at = host(member.client_host) or "unknown host"
    is_named = process.grade is Grade.INFERRED or not member.client_id
    return at if is_named else f"{at}, client {member.client_id}"


def _silences(ended: Iterable[EndedLife]) -> Iterator[SpanOnPage]:
    for each in ended:
        if each.at_ms - each.last_seen_ms >= SILENCE_MIN_MS:
            yield SpanOnPage(each.last_seen_ms, each.at_ms)


def _by_member(pairs: Iterable[tuple[MemberId, T]]) -> dict[MemberId, list[T]]:
    found: defaultdict[MemberId, list[T]] = defaultdict(list)
    for member_id, each in pairs:
        found[member_id].append(each)
    return found
