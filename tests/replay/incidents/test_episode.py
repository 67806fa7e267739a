"""Queries to an episode are cheap, however many there are: the work is counted, not timed."""

import cProfile
import pstats
from collections.abc import Iterator
from random import Random
from typing import Any

import msgspec
import pytest

from muster.events.causes import Cause
from muster.events.events import Why
from muster.events.ids import MemberId
from muster.replay.incidents.episode.acts import AnyAct, AskedFor, CameBack, Phase
from muster.replay.incidents.episode.episode import Episode
from muster.replay.incidents.episode.memberships import Memberships
from tests.replay.histories import Script
from tests.replay.whole import History, incidents

ACTS = 10_000
QUESTIONS = 1_000


class Counted(list[AnyAct]):
    """Counts how many acts were read."""

    looked_at = 0

    def __iter__(self) -> Iterator[AnyAct]:
        for act in super().__iter__():
            self.looked_at += 1
            yield act

    def __getitem__(self, at: Any) -> Any:
        found = super().__getitem__(at)
        self.looked_at += len(found) if isinstance(at, slice) else 1
        return found


def acts(*, phases: float) -> Iterator[AnyAct]:
    """Return acts of static members that come back repeatedly, with a phase or a clock set back now and then."""
    random, at_ms = Random(1), 0
    template, why = Script().member("a"), Why(cause=Cause.ALL_JOINED, arrived_ms=0, decided_ms=0)
    there = [MemberId(f"m-{number}") for number in range(10)]
    for seq in range(ACTS):
        at_ms += random.randint(-20, 30)
        if random.random() < phases:
            yield Phase(seq=seq, at_ms=at_ms, why=why, event=None, members=tuple(there))  # type: ignore[arg-type]
            continue
        place = random.randrange(len(there))
        replaced, there[place] = there[place], MemberId(f"m-{seq + 10}")
        member = msgspec.structs.replace(template, member_id=there[place])
        yield CameBack(
            seq=seq,
            at_ms=at_ms,
            why=why,
            member=member,
            before=None,
            replaced_member_id=replaced,
            replaced_client_host="/10.0.0.1",
            last_seen_ms=at_ms,
            longest_silence_ms=0,
            heard=True,
            absorbed=True,
        )


def plainly(reported: list[AnyAct], at_ms: int) -> frozenset[MemberId]:
    """Return the members right before this time, searched from the beginning."""
    members: set[MemberId] = set()
    for act in reported:
        if act.at_ms >= at_ms:
            break
        if isinstance(act, Phase):
            members = set(act.members)
        elif isinstance(act, CameBack):
            members = members - {act.replaced_member_id} | {act.member.member_id}
    return frozenset(members)


@pytest.mark.slow
def test_members_are_found_without_reading_all_earlier_events() -> None:
    """In long runs of restarts without a phase, and with many phases; the result equals that of the plain search."""
    for phases in (0.0, 0.001, 0.3):
        reported = Counted(acts(phases=phases))
        episode = Episode(None)
        episode.acts = reported
        end_ms = max(act.at_ms for act in list(reported))
        moments = range(0, end_ms + 2, max(1, end_ms // QUESTIONS))
        reported.looked_at = 0
        found = [episode.members_at(at_ms) for at_ms in moments]
        assert reported.looked_at <= 10 * ACTS
        assert found[::50] == [plainly(list(reported), at_ms) for at_ms in moments[::50]]


def test_members_are_found_from_the_last_hundred_returns() -> None:
    """Without a phase in between, no other act has the members."""
    reported = list(acts(phases=0))[:1_000]
    memberships = Memberships(reported, ())
    returns = Counted(memberships._returns)  # type: ignore[arg-type]
    memberships._returns = returns  # type: ignore[assignment]
    for at_ms in range(0, max(act.at_ms for act in reported) + 2, 50):
        returns.looked_at = 0
        memberships.at(at_ms)
        assert returns.looked_at <= 120  # the search itself reads some acts


def moves() -> Iterator[AnyAct]:
    """Return acts of a group that moves upstream and back repeatedly; the clock is set back now and then."""
    random, at_ms = Random(1), 0
    for seq in range(ACTS):
        at_ms += random.randint(-20, 30)
        cause = random.choice((Cause.GROUP_CONFIGURED, Cause.GROUP_RELEASED))
        why = Why(cause=cause, arrived_ms=at_ms, decided_ms=at_ms)
        yield AskedFor(seq=seq, at_ms=at_ms, why=why, cause=cause, is_upstream=random.choice((True, False, None)))


def plainly_upstream(reported: list[AnyAct], from_ms: int, until_ms: int) -> int:
    """Return the same sum over all acts."""
    passed_ms, since_ms, is_configured = 0, None, False
    for act in reported:
        assert isinstance(act, AskedFor)
        if act.is_upstream is not None:
            is_configured = act.is_upstream
        if since_ms is not None and act.is_upstream is False:
            passed_ms += max(0, min(until_ms, act.at_ms) - max(from_ms, since_ms))
            since_ms = None
        elif since_ms is None and (is_configured or act.cause is Cause.GROUP_RELEASED):
            since_ms = act.at_ms
    return passed_ms if since_ms is None else passed_ms + max(0, until_ms - max(from_ms, since_ms))


def test_when_the_cluster_had_the_group_is_found_without_reading_all_acts_again() -> None:
    """A group that is emptied repeatedly queries it each time."""
    reported = Counted(moves())
    episode = Episode(None)
    episode.acts = reported
    end_ms = max(act.at_ms for act in list(reported))
    spans = [(at_ms, at_ms + 1_000) for at_ms in range(0, end_ms, max(1, end_ms // QUESTIONS))]
    reported.looked_at = 0
    found = [episode.upstream_ms(*span) for span in spans]
    assert reported.looked_at <= ACTS
    assert found[::50] == [plainly_upstream(list(reported), *span) for span in spans[::50]]


@pytest.mark.parametrize("is_early", [False, True])
@pytest.mark.parametrize("named", ["app-{}", "app-{:04x}x", "app"])
def test_the_work_grows_no_faster_than_the_joins_and_leaves(named: str, *, is_early: bool) -> None:
    """A single consumer joins and leaves repeatedly, for good or within the initial delay. Calls are counted."""
    assert _calls(_joins_and_leaves(400, named, is_early=is_early)) < 2.2 * _calls(
        _joins_and_leaves(200, named, is_early=is_early)
    )


def _joins_and_leaves(times: int, named: str, *, is_early: bool) -> History:
    script = Script().created()
    for number in range(times):
        member = script.member(f"m{number}", static=False, client_id=named.format(number))
        script.wait(1_000).start(script.joined(member)).wait(1_000)
        if is_early:
            script.emptied(script.removed(member, Cause.MEMBER_LEFT))
            continue
        script.complete(cause=Cause.INITIAL_DELAY_ELAPSED).stabilize({member.member_id: {"orders": [0, 1]}})
        script.wait(1_000).start(script.removed(member, Cause.MEMBER_LEFT)).emptied()
    return script.history()


def _calls(history: History) -> int:
    profile = cProfile.Profile()
    profile.runcall(incidents, history)
    return pstats.Stats(profile).total_calls  # type: ignore[attr-defined, no-any-return]
