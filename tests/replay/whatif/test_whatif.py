"""`whatif` on histories that the rules made, compared with the same story really lived with the other settings."""

from collections.abc import Iterable
from random import Random
from typing import Final

import msgspec
import pytest

from muster.events.causes import Cause
from muster.events.connection import ConnectionEnd, LastConnection
from muster.events.events import (
    CoordinatorElected,
    MemberEvent,
    MemberJoined,
    MemberRejoined,
    MemberRemoved,
    RebalanceStarted,
)
from muster.replay.history.items import Coordinated, Gap, Happened, Item
from muster.replay.incidents.grade import Grade
from muster.replay.text.times import instant
from muster.replay.whatif.alterations import Alterations
from muster.replay.whatif.rebalances import NOT_REPRODUCED, Open, Verdicts
from muster.replay.whatif.silences import Silences
from muster.replay.whatif.telling import BARELY_SILENT
from muster.replay.whatif.verdict import Replayed, Verdict, WhatIf
from muster.replay.whatif.whatif import WhatIfFold
from tests.judge.case import make_case
from tests.replay.histories import Script
from tests.replay.incidents.test_real_clients import history_in
from tests.replay.lived import Deed, Settings, history_lived, live, started
from tests.replay.played import history_of
from tests.replay.recorded import DATA
from tests.replay.whole import History, rebalances, what_if

WOULD, WOULD_NOT, CANNOT_TELL = Verdict.WOULD, Verdict.WOULD_NOT, Verdict.CANNOT_TELL

A_RESTART: list[Deed] = [(5, "crash", "b"), (25, "start", "b")]
A_DEPLOYMENT: list[Deed] = [
    (5, "stop", "a"),
    (12, "start", "a"),
    (25, "stop", "b"),
    (32, "start", "b"),
    (45, "stop", "c"),
    (52, "start", "c"),
]
A_SCALE_UP: list[Deed] = [(5, "start", "d"), (12, "start", "e"), (19, "start", "f")]


def verdicts(result: WhatIf) -> list[Verdict]:
    return [each.verdict for each in result.rebalances]


def whatif_of(
    script: list[Deed], lived: Settings, other: Settings, *, until_s: int = 90, begins: str = "abc"
) -> tuple[WhatIf, int]:
    """Return a story's what-if, and the number of rebalances with the other settings in reality."""
    history = history_of(live(script, lived, until_s=until_s, begins=begins))
    changed = {
        field: getattr(other, field)
        for field in Settings.__struct_fields__
        if getattr(other, field) != getattr(lived, field)
    }
    really = live(script, other, until_s=until_s, begins=begins)
    return what_if(history, Alterations(**changed)), started(really)


def with_settings(lived: Settings, **changed: object) -> Settings:
    return msgspec.structs.replace(lived, **changed)


STATIC = Settings()
DYNAMIC = Settings(is_static=False)


def test_a_restart_within_a_longer_session_makes_no_rebalance() -> None:
    """Neither the expiry nor the return would have caused one; in reality there is none."""
    result, really = whatif_of(A_RESTART, STATIC, with_settings(STATIC, session_timeout_ms=45_000))
    assert verdicts(result) == [WOULD, WOULD_NOT, WOULD_NOT]
    assert (result.would, really) == (1, 1)
    assert {each.grade for each in result.rebalances} == {Grade.RECORDED}
    assert result.avoided_ms > 0
    assert result.additional == ()


def test_verdicts_are_reported_while_more_is_read() -> None:
    """At twice the longest session after the end of its rebalance, however long the history is."""
    history = history_of(live([(5, "start", "d"), (200, "start", "e"), (400, "start", "f")], STATIC, until_s=420))
    fold = WhatIfFold(history.group_id, Alterations(session_timeout_ms=45_000))
    reported = [len([line for line in fold.feed(item) if isinstance(line, Replayed)]) for item in history.items]
    assert (sum(reported), len(list(fold.end()))) == (2, 2)


def test_a_restart_that_a_longer_session_does_not_cover() -> None:
    """The expiry comes later, and the return still is a rebalance of its own."""
    result, really = whatif_of(A_RESTART, STATIC, with_settings(STATIC, session_timeout_ms=15_000))
    assert verdicts(result) == [WOULD, WOULD, WOULD]
    assert really == 3
    assert "5.0 s later" in result.rebalances[1].reason


def test_a_crash_is_one_however_long_the_session() -> None:
    """It only comes later; if the log ends before, it cannot be determined."""
    crash: list[Deed] = [(5, "crash", "b")]
    result, really = whatif_of(crash, STATIC, with_settings(STATIC, session_timeout_ms=45_000))
    assert verdicts(result) == [WOULD, CANNOT_TELL]
    assert "the log ends" in result.rebalances[1].reason
    later: list[Deed] = [*crash, (70, "start", "d")]
    result, really = whatif_of(later, STATIC, with_settings(STATIC, session_timeout_ms=45_000))
    assert verdicts(result) == [WOULD, WOULD, WOULD]
    assert really == 3


def test_a_deployment_of_static_members() -> None:
    """Six rebalances of dynamic members, none of static ones; the identities are a hypothesis."""
    result, really = whatif_of(A_DEPLOYMENT, DYNAMIC, with_settings(DYNAMIC, is_static=True))
    assert verdicts(result) == [WOULD, *[WOULD_NOT] * 6]
    assert really == 1
    assert {each.grade for each in result.rebalances[1:]} == {Grade.INFERRED}


def test_indistinguishable_processes() -> None:
    """All have one client id and host, so it is not known which process would have had which instance id."""
    h = live(A_DEPLOYMENT, DYNAMIC, until_s=90)
    history = history_of(h)

    def anonymous(item: Happened) -> Happened:
        event = item.event
        why = msgspec.structs.replace(event.why, client_id="app") if event.why.client_id else event.why
        event = msgspec.structs.replace(event, why=why)
        member = getattr(event, "member", None)
        if member is not None:
            event = msgspec.structs.replace(event, member=msgspec.structs.replace(member, client_id="app"))
        return msgspec.structs.replace(item, event=event)

    items = tuple(anonymous(item) if isinstance(item, Happened) else item for item in history.items)
    result = what_if(msgspec.structs.replace(history, items=items), Alterations(is_static=True))
    assert set(verdicts(result)[1:]) == {CANNOT_TELL}
    assert all("app" in each.reason for each in result.rebalances[1:])


def test_new_processes_one_after_another_with_a_scale_up_delay() -> None:
    """They make one rebalance, later."""
    result, really = whatif_of(A_SCALE_UP, STATIC, with_settings(STATIC, scale_up_delay_ms=25_000))
    assert verdicts(result) == [WOULD, WOULD, WOULD_NOT, WOULD_NOT]
    assert really == 2
    assert "25.0 s later" in result.rebalances[1].reason
    assert "part of the one" in result.rebalances[2].reason


def test_a_group_that_forms_with_a_longer_initial_delay() -> None:
    """A process that joins a little later is in the first generation."""
    result, really = whatif_of(
        [(0, "start", "a"), (8, "start", "b")],
        STATIC,
        with_settings(STATIC, initial_rebalance_delay_ms=12_000),
        begins="",
    )
    assert verdicts(result) == [WOULD, WOULD_NOT]
    assert really == 1


def test_a_group_that_forms_without_an_initial_delay() -> None:
    """A process that joined within it causes a rebalance of its own."""
    script: list[Deed] = [(0, "start", "a"), (2, "start", "b")]
    result, really = whatif_of(script, STATIC, with_settings(STATIC, initial_rebalance_delay_ms=0), begins="")
    assert verdicts(result) == [WOULD]
    assert [each.verdict for each in result.additional] == [WOULD]
    assert (bool(result.rebalances), result.left_out) == (True, 0)
    assert really == 2


def test_a_dynamic_member_that_returned_after_its_session() -> None:
    """It was restarted or only silent: with a longer session it may have kept its place.

    Its loss causes no rebalance either way.
    """
    result, _ = whatif_of(A_RESTART, DYNAMIC, with_settings(DYNAMIC, session_timeout_ms=45_000))
    assert verdicts(result) == [WOULD, WOULD_NOT, CANNOT_TELL]
    _, lost, back = result.rebalances
    assert "either it would have been a part of the one that began with seq" in lost.reason
    assert lost.recorded is not None
    assert back.recorded is not None
    assert (lost.played, result.undecided) == (None, lost.recorded + back.recorded)
    assert "restarted or only silent" in result.rebalances[2].reason


A_STALL: list[Deed] = [(5, "stall", "b"), (25, "resume", "b")]


def test_a_dynamic_member_that_was_heard_again_had_not_died() -> None:
    """It had lost its place, and would have kept it with a longer session; really lived, it does."""
    result, really = whatif_of(A_STALL, DYNAMIC, with_settings(DYNAMIC, session_timeout_ms=45_000))
    assert verdicts(result) == [WOULD, WOULD_NOT, WOULD_NOT]
    assert (result.would, really) == (1, 1)
    assert all("come back as the same member" in each.reason for each in result.rebalances[1:])
    assert [each.grade for each in result.rebalances] == [Grade.RECORDED, Grade.RECORDED, Grade.INFERRED]


def test_a_member_that_loses_its_place_again_and_again_keeps_it() -> None:
    """It has a new id each time in the log, and one in the play, where the last silence is a crash."""
    again: list[Deed] = [*A_STALL, (40, "stall", "b"), (60, "resume", "b"), (80, "crash", "b"), (140, "start", "e")]
    other = with_settings(DYNAMIC, session_timeout_ms=45_000)
    result, really = whatif_of(again, DYNAMIC, other, until_s=200)
    assert verdicts(result) == [WOULD, *[WOULD_NOT] * 4, WOULD, WOULD]
    assert really == 3


def test_a_member_that_was_heard_again_and_did_not_rejoin() -> None:
    """It was alive, but it is not known how long it would have kept its place."""
    script: list[Deed] = [(5, "stall", "b"), (25, "beat", "b"), (26, "crash", "b"), (30, "start", "d")]
    result, _ = whatif_of(script, DYNAMIC, with_settings(DYNAMIC, session_timeout_ms=60_000), until_s=150)
    assert CANNOT_TELL in verdicts(result)[1:]
    assert any("heard from again" in each.reason for each in result.rebalances)


@pytest.mark.parametrize(
    ("came_on", "verdict", "reason"),
    [
        (7, WOULD_NOT, "come back as the same member"),
        (8, CANNOT_TELL, "restarted or only silent"),
    ],
)
def test_a_member_that_rejoins_on_its_connection_had_not_died(came_on: int, verdict: Verdict, reason: str) -> None:
    """Even if it was not heard from with its old id."""
    lost = LastConnection(connection_id=7, received_ms=0)
    result = what_if(connected(history_of(live(A_RESTART, DYNAMIC, until_s=90)), lost, came_on), LONGER)
    assert verdicts(result)[2] == verdict
    assert reason in result.rebalances[2].reason


def test_a_connection_of_several_members_distinguishes_no_processes() -> None:
    """Such as a proxy's."""
    lost = LastConnection(connection_id=7, received_ms=0)
    history = connected(history_of(live(A_RESTART, DYNAMIC, until_s=90)), lost, 7, others=7)
    assert verdicts(what_if(history, LONGER))[2] == CANNOT_TELL


def test_a_member_whose_side_closed_its_connection_was_restarted() -> None:
    """So the group would have waited for its old id: the return is a rebalance of its own, and the loss part of it."""
    history = history_of(live(A_RESTART, DYNAMIC, until_s=90))
    seen_ms = next(
        item.event.last_seen_ms
        for item in history.items
        if isinstance(item, Happened) and isinstance(item.event, MemberRemoved)
    )
    lost = LastConnection(connection_id=7, received_ms=seen_ms, end=ConnectionEnd.CLOSED, ended_ms=seen_ms + 5)
    result = what_if(connected(history, lost, 8), LONGER)
    really = started(live(A_RESTART, with_settings(DYNAMIC, session_timeout_ms=45_000), until_s=90))
    assert verdicts(result) == [WOULD, WOULD_NOT, WOULD]
    assert result.would == really
    assert result.rebalances[2].grade is Grade.INFERRED


LONGER = Alterations(session_timeout_ms=45_000)


def connected(history: History, lost: LastConnection, came_on: int, others: int = 1) -> History:
    """Return the history with connections for the lost member, the one that joined then, and the others."""
    is_lost = False

    def on_connection(item: Item) -> Item:
        nonlocal is_lost
        if not isinstance(item, Happened):
            return item
        event = item.event
        if isinstance(event, MemberRemoved):
            is_lost = True
            return msgspec.structs.replace(item, event=msgspec.structs.replace(event, last_connection=lost))
        if not isinstance(event, MemberJoined | MemberRejoined):
            return item
        number = came_on if is_lost and isinstance(event, MemberJoined) else others
        why = msgspec.structs.replace(event.why, connection_id=number)
        return msgspec.structs.replace(item, event=msgspec.structs.replace(event, why=why))

    return msgspec.structs.replace(history, items=tuple(map(on_connection, history.items)))


def test_a_member_that_dies_in_a_join_phase_is_missed_when_its_session_has_ended() -> None:
    """Also if it had been alive for longer than a session before, of which there is no record."""
    script: list[Deed] = [(1, "crash", "a"), (2, "start", "d"), (18, "stall", "c"), (48, "resume", "c")]
    result, really = whatif_of(script, DYNAMIC, with_settings(DYNAMIC, session_timeout_ms=18_500), until_s=120)
    assert (result.cannot_tell, result.besides_unknown) == (0, 0)
    assert result.would == really


@pytest.mark.parametrize(
    ("script", "seq"),
    [
        (
            [
                (12, "stall", "c"),
                (22, "stall", "b"),
                (24, "resume", "c"),
                (24, "start", "d"),
                (30, "crash", "c"),
                (46, "resume", "b"),
            ],
            28,
        ),
        (
            [
                (14, "stall", "b"),
                (23, "stall", "a"),
                (23, "start", "d"),
                (25, "crash", "c"),
                (42, "resume", "a"),
                (43, "resume", "b"),
            ],
            22,
        ),
    ],
)
def test_the_death_of_a_member_with_a_parked_join_has_an_unknown_time(script: list[Deed], seq: int) -> None:
    """It sends no heartbeats then. Really lived, it rejoins before it dies, and gets removed in its own rebalance."""
    result, really = whatif_of(script, DYNAMIC, with_settings(DYNAMIC, session_timeout_ms=45_000), until_s=120)
    assert [(each.seq, each.reason) for each in result.rebalances if each.verdict is CANNOT_TELL] == [
        (seq, BARELY_SILENT)
    ]
    assert (really, result.would + result.cannot_tell) == (3, 3)


def test_waiting_for_a_member_of_unknown_fate_has_an_unknown_cost() -> None:
    """It would have happened; how long it would have lasted depends on that member. So it is in neither sum."""
    script: list[Deed] = [
        (12, "stall", "c"),
        (22, "stall", "b"),
        (24, "resume", "c"),
        (24, "start", "d"),
        (30, "crash", "c"),
        (46, "resume", "b"),
    ]
    history = history_of(live(script, DYNAMIC, until_s=120))
    really = history_of(live(script, with_settings(DYNAMIC, session_timeout_ms=45_000), until_s=120))
    result = what_if(history, Alterations(session_timeout_ms=45_000))
    first, second, doubted, after = result.rebalances
    assert (first.recorded, second.verdict, doubted.verdict) == (first.played, WOULD, CANNOT_TELL)
    assert (second.played, after.played) == (None, None)
    assert second.recorded is not None
    assert result.undecided.not_stable_ms > second.recorded.not_stable_ms
    assert result.played.not_stable_ms <= what_if(really, Alterations()).recorded.not_stable_ms


@pytest.mark.parametrize("session_timeout_ms", [18_500, 45_000])
def test_a_member_that_leaves_after_its_session_may_have_left_before_a_longer_one(session_timeout_ms: int) -> None:
    """It stalls, and is closed when it goes on: with the longer session its LeaveGroup starts a rebalance.

    The log has only that it was heard from.
    """
    script: list[Deed] = [(5, "stall", "b"), (16, "stop", "b"), (17, "start", "d")]
    result, really = whatif_of(
        script, DYNAMIC, with_settings(DYNAMIC, session_timeout_ms=session_timeout_ms), until_s=120
    )
    assert result.would < really == result.would + result.cannot_tell


def test_a_static_member_that_comes_back_at_the_end_of_its_session_is_not_decided() -> None:
    """Its session begins with its last heartbeat, not when it would have left; it comes back as that ends."""
    script: list[Deed] = [(3, "stop", "b"), (12, "start", "b"), (23, "start", "d")]
    result, really = whatif_of(script, DYNAMIC, with_settings(DYNAMIC, is_static=True))
    assert result.would < really <= result.would + result.cannot_tell


def test_a_dropped_member_that_returned_as_a_new_one_would_have_kept_its_place() -> None:
    """Real clients: three leaders were dropped while they assigned, after 10 s, and rejoined as new members."""
    history = history_in(DATA / "slow-leader-timeout.jsonl", "slow-leader-timeout")
    result = what_if(history, Alterations(rebalance_timeout_ms=60_000))
    assert verdicts(result) == [WOULD, WOULD, CANNOT_TELL, CANNOT_TELL, CANNOT_TELL, WOULD, WOULD, WOULD]
    assert "a member that was dropped would have kept its place" in result.rebalances[4].reason


@pytest.mark.parametrize(
    ("interval_ms", "longer_ms", "verdict"),
    [
        (8_000, 60_000, CANNOT_TELL),
        (8_000, None, WOULD),  # the time between polls is as recorded
        (40_000, 60_000, WOULD),  # it left before the time between polls could be over
        (10_000, 60_000, WOULD),  # as long as its session, as in aiokafka: the time between polls is not recorded
    ],
)
def test_a_member_that_left_and_returned_may_have_polled_too_late(
    interval_ms: int, longer_ms: int | None, verdict: Verdict
) -> None:
    """With a longer max.poll.interval.ms it may have stayed; its first join and the others' have nothing to do with
    that.
    """
    script: list[Deed] = [(5, "start", "d"), (30, "stop", "d"), (45, "start", "d"), (60, "start", "e")]
    lived = with_settings(DYNAMIC, rebalance_timeout_ms=interval_ms)
    result = what_if(history_of(live(script, lived, until_s=90)), Alterations(rebalance_timeout_ms=longer_ms))
    assert verdicts(result) == [WOULD, WOULD, verdict, verdict, WOULD]
    assert all("may have left because it polled too late" in each.reason for each in result.rebalances[2:4]) is (
        verdict is CANNOT_TELL
    )


@pytest.mark.parametrize(
    ("interval_ms", "reason", "verdict"),
    [
        (8_000, "the consumer is being closed", WOULD),
        (8_000, "scaled down", WOULD),
        (40_000, "consumer poll timeout has expired.", CANNOT_TELL),
    ],
)
def test_a_client_that_gives_a_leave_reason_is_believed(interval_ms: int, reason: str, verdict: Verdict) -> None:
    """However long it was there."""
    lived = with_settings(DYNAMIC, rebalance_timeout_ms=interval_ms)
    history = history_of(live([(30, "stop", "c"), (45, "start", "c")], lived, until_s=80))

    def reported(item: Item) -> Item:
        if not isinstance(item, Happened) or item.event.why.cause is not Cause.MEMBER_LEFT:
            return item
        why = msgspec.structs.replace(item.event.why, client_reason=reason)
        return msgspec.structs.replace(item, event=msgspec.structs.replace(item.event, why=why))

    history = msgspec.structs.replace(history, items=tuple(map(reported, history.items)))
    result = what_if(history, Alterations(rebalance_timeout_ms=60_000))
    assert verdicts(result) == [WOULD, verdict, verdict]


def test_a_shorter_time_between_polls_may_lose_members_that_poll_less_often() -> None:
    """The note says that the log does not show how often."""
    for shorter_ms, is_noted in ((20_000, True), (60_000, False), (90_000, False)):
        result = what_if(
            history_of(live(A_SCALE_UP, DYNAMIC, until_s=90)), Alterations(rebalance_timeout_ms=shorter_ms)
        )
        assert any("does not poll within its max.poll.interval.ms" in each for each in result.notes) is is_noted


def test_shorter_sessions_only_as_far_as_silences_are_recorded() -> None:
    """An absorbed restart had a silence; nothing is known about the time after the last events."""
    lived = with_settings(STATIC, session_timeout_ms=45_000)
    result, _ = whatif_of(A_RESTART, lived, with_settings(STATIC, session_timeout_ms=10_000))
    assert verdicts(result) == [WOULD]
    (silence,) = result.additional
    assert (silence.verdict, silence.grade) == (WOULD, Grade.RECORDED)
    assert "'b'" in silence.reason
    assert any("how long 3 members fell silent" in note for note in result.notes)
    borne, _ = whatif_of(A_RESTART, lived, with_settings(STATIC, session_timeout_ms=30_000))
    assert borne.additional == ()


def test_time_in_the_join_phase_is_not_silence() -> None:
    """A request that is parked for 40 s would end no session of 10 s."""
    lived = with_settings(STATIC, session_timeout_ms=45_000)
    script: list[Deed] = [(5, "crash", "b"), (7, "start", "d")]
    result, _ = whatif_of(script, lived, with_settings(lived, session_timeout_ms=10_000))
    assert WOULD not in [each.verdict for each in result.additional]


def test_after_a_gap_the_outcome_is_unknown() -> None:
    """Until the group is created again."""
    history = history_of(live(A_RESTART, STATIC, until_s=60))
    gap = next(i for i, item in enumerate(history.items) if isinstance(item, Happened) and item.event.seq == 6)
    item = history.items[gap]
    assert isinstance(item, Happened)
    missing = Gap(position=item.position, incarnation=item.event.incarnation, first_seq=6, last_seq=6)
    items = (*history.items[:gap], missing, *history.items[gap + 1 :])
    result = what_if(msgspec.structs.replace(history, items=items), Alterations(session_timeout_ms=45_000))
    assert set(verdicts(result)[1:]) == {CANNOT_TELL}


def test_without_other_settings_everything_happens_as_it_did() -> None:
    """The same rules and settings give the same rebalances, at the same times."""
    for script in (A_RESTART, A_DEPLOYMENT, A_SCALE_UP):
        for lived in (STATIC, DYNAMIC):
            result, really = whatif_of(script, lived, lived)
            assert verdicts(result) == [WOULD] * really
            assert all(each.would_begin_at == each.started_at for each in result.rebalances)
            assert result.additional == ()


@pytest.mark.parametrize("seed", range(8))
def test_the_judges_rebalances_happen_again_without_other_settings(seed: int) -> None:
    """Whatever was done to the processes; it is undetermined only if a takeover or a gap came in between."""
    result = what_if(make_case(seed).history, Alterations())
    assert result.would_not == 0
    assert all(each.would_begin_at in (each.started_at, None) for each in result.rebalances)


OTHERS: Final[tuple[dict[str, int], ...]] = (
    {"session_timeout_ms": 45_000},
    {"session_timeout_ms": 18_500},
    {"rebalance_timeout_ms": 8_500},
    {"scale_up_delay_ms": 12_000},
    {"initial_rebalance_delay_ms": 0},
    {"initial_rebalance_delay_ms": 9_000},
    {},
)


def random_story(seed: int) -> tuple[list[Deed], dict[str, int]]:
    """Return up to eight deeds and the other settings. Not by Hypothesis, whose examples change with the code."""
    draw = Random(seed)
    names, actions = "abcde", ("start", "crash", "stop")
    script: list[Deed] = [
        (draw.randint(1, 40), draw.choice(actions), draw.choice(names)) for _ in range(draw.randint(0, 8))
    ]
    return script, draw.choice(OTHERS)


def differences(stories: Iterable[tuple[list[Deed], dict[str, int]]]) -> list[int]:
    """Return by how much the rebalances of each decided story differ from those that it really has."""
    found = []
    for script, other in stories:
        result = what_if(history_lived(live(script, STATIC, until_s=100)), msgspec.convert(other, Alterations))
        if not (result.cannot_tell or result.besides_unknown):
            really = started(live(script, with_settings(STATIC, **other), until_s=100))
            found.append(result.would + len(result.additional) - really)
    return found


@pytest.mark.parametrize(
    ("script", "other"),
    [
        ([(1, "start", "d"), (5, "crash", "a"), (15, "crash", "b")], {"scale_up_delay_ms": 12_000}),
        ([(1, "start", "d"), (1, "crash", "a"), (2, "crash", "d")], {"rebalance_timeout_ms": 8_500}),
        ([(5, "crash", "b"), (10, "stop", "a"), (17, "takeover", "")], {"rebalance_timeout_ms": 8_500}),
        ([(5, "crash", "b"), (20, "takeover", ""), (25, "start", "b")], {"session_timeout_ms": 45_000}),
        ([(10, "start", "d"), (11, "crash", "d"), (11, "takeover", "")], {"session_timeout_ms": 45_000}),
    ],
)
def test_stories_that_were_once_reported_wrongly(script: list[Deed], other: dict[str, int]) -> None:
    """Each had one rebalance too many or too few."""
    assert differences([(script, other)]) in ([0], [])


def test_the_predicted_outcome_matches_the_real_one() -> None:
    """Random stories, played with other settings, have as many rebalances as they really have with them.

    Of some thousand, a few are off by one (docs/replay.md), such as `[(1, "start", "d"), (1, "crash", "c"),
    (10, "start", "c")]` with a rebalance timeout of 8,500 ms.
    """
    found = differences((sorted(script), other) for script, other in map(random_story, range(100)))
    assert len(found) > 60
    assert found == [0] * len(found)


def test_the_predicted_outcome_across_takeovers_matches_the_real_one() -> None:
    """Sessions and phases restart then, in the play as in reality; members that waited in a phase ask again.

    A few are off by one (4 of 302 decided): whether a member asked again after the takeover is not recorded.
    """
    stories = []
    for seed in range(1_000, 1_060):
        script, other = random_story(seed)
        takeovers: list[Deed] = [(Random(-seed).randint(1, 40), "takeover", "") for _ in range(1 + seed % 2)]
        stories.append((sorted([*script, *takeovers]), other))
    found = differences(stories)
    assert len(found) > 20
    assert sum(each != 0 for each in found) <= 2
    assert all(abs(each) <= 1 for each in found)


@pytest.mark.parametrize("second", [30, 80])
def test_a_takeover_long_after_a_rebalance_changes_nothing_about_it(second: int) -> None:
    """A silent member had come back: nothing was pending any more."""
    lived = live([*A_RESTART, (second, "takeover", "")], STATIC, until_s=90)
    result = what_if(history_lived(lived, is_seen=False), Alterations(session_timeout_ms=45_000))
    assert verdicts(result) == [WOULD, WOULD_NOT, WOULD_NOT]


def test_later_actions_of_a_former_owner_are_unknown_without_a_sign() -> None:
    """A session ended before its successor was ready: it is not known who was alive then, nor what followed."""
    lived = live([(5, "crash", "b"), (38, "takeover", ""), (39, "start", "b")], STATIC, until_s=90)
    result = what_if(history_lived(lived, is_seen=False), Alterations(session_timeout_ms=30_000))
    assert verdicts(result) == [WOULD, CANNOT_TELL, CANNOT_TELL]
    behind, taken_over = result.rebalances[2].reason, result.rebalances[1].reason
    assert "another coordinator took over meanwhile" in taken_over
    assert "it is not known whether the rebalance before it" in behind
    seen = what_if(history_lived(lived), Alterations(session_timeout_ms=30_000))
    assert verdicts(seen) == [WOULD, WOULD, WOULD]


def test_events_out_of_order_are_played_as_far_as_they_can_be() -> None:
    """An event before the beginning of a group's incarnation does not count."""
    history = history_of(live(A_RESTART, STATIC, until_s=90))
    of_members = [item for item in history.items if isinstance(item, Happened) and isinstance(item.event, MemberEvent)]
    for moved in of_members:
        mixed = msgspec.structs.replace(history, items=(moved, *history.items))
        assert len(what_if(mixed, Alterations(session_timeout_ms=45_000)).rebalances) == 3


def test_settings_that_are_not_numbers_are_unknown() -> None:
    """A coordinator never writes such; another writer may have."""
    history = history_of(live(A_RESTART, STATIC, until_s=90))
    elected = history.items[0]
    assert isinstance(elected, Coordinated)
    assert isinstance(elected.event, CoordinatorElected)
    event = msgspec.structs.replace(
        elected.event, settings={"group.max.size": "many", "group.min.session.timeout.ms": ""}
    )
    odd = msgspec.structs.replace(history, items=(msgspec.structs.replace(elected, event=event), *history.items[1:]))
    assert len(what_if(odd, Alterations(session_timeout_ms=45_000)).rebalances) == 3


def test_time_during_a_coordinator_pause_is_not_silence() -> None:
    """No session ended in it: of 20 s of silence, 12 s may have been the coordinator's pause."""
    script = Script().created()
    script.start(script.joined(script.member("a"))).complete().stabilize({"a": {"orders": [0]}})
    script.wait(60_000).paused(12_000).wait(1_000)
    rejoined = msgspec.structs.replace(script.rejoined(script.of("a")), longest_silence_ms=20_000)
    script.advanced(rejoined)
    for session_ms, verdict in ((15_000, CANNOT_TELL), (7_000, WOULD)):
        silences = Silences(session_ms)
        reported = [found for item in script.history().items if (found := silences.feed(item)) is not None]
        assert [each.verdict for each in reported] == [verdict]


@pytest.mark.parametrize("meanwhile", ["a pause", "a takeover"])
def test_a_join_stays_parked_while_the_coordinator_pauses_or_changes(meanwhile: str) -> None:
    """The client waits for its answer, so its silence until the end of the join phase ends no session."""
    script = Script().created()
    script.start(script.joined(script.member("a"))).complete().stabilize({"a": {"orders": [0]}})
    script.start(script.rejoined(script.of("a"))).wait(10_000)
    script = script.paused(2_000) if meanwhile == "a pause" else script.coordinator("coordinator-b:200")
    script.wait(10_000).complete().wait(1_000)
    script.start(msgspec.structs.replace(script.rejoined(script.of("a")), longest_silence_ms=20_000))
    silences = Silences(5_000)
    (reported,) = [found for item in script.history().items if (found := silences.feed(item)) is not None]
    assert (reported.verdict, reported.grade) == (CANNOT_TELL, Grade.UNKNOWN)
    assert reported.reason.endswith("for 20.0 s of it no session could end here")


def test_rebalances_not_reproduced_by_the_control_are_undecidable() -> None:
    """Something mattered that is not in the log."""
    for begins_later_ms, verdict in ((None, CANNOT_TELL), (60_000, CANNOT_TELL), (0, WOULD_NOT)):
        script = Script().created()
        script.start(script.joined(script.member("a"))).complete().stabilize({"a": {"orders": [0]}})
        items = script.history().items
        begun = [each.event for each in items if isinstance(each, Happened)]
        (started,) = (event for event in begun if isinstance(event, RebalanceStarted))
        one = Open(started=started, subjects=frozenset(), grade=Grade.RECORDED)
        verdicts = Verdicts(script.group_id)
        for item in items:
            verdicts.feed(item, is_within=True)
        verdicts.end()
        verdicts.would_not(one, "")
        if begins_later_ms is None:
            verdicts.control.would_not(one, "")
        else:
            began_ms = started.why.decided_ms + begins_later_ms
            verdicts.control.would(msgspec.structs.replace(one, begins_ms=began_ms), "")
        (reported,) = verdicts.ready()
        assert (reported.verdict, NOT_REPRODUCED in reported.reason) == (verdict, verdict is CANNOT_TELL)


def test_a_rebalance_is_reported_after_its_end_and_after_the_control() -> None:
    """Whichever of the two comes first."""
    for control_first in (False, True):
        script = Script().created()
        script.start(script.joined(script.member("a")))
        begun = script.history().items
        ended = script.complete().stabilize({"a": {"orders": [0]}}).history().items[len(begun) :]
        verdicts = Verdicts(script.group_id)
        for item in begun:
            verdicts.feed(item, is_within=True)
        events = [each.event for each in begun if isinstance(each, Happened)]
        (started,) = (event for event in events if isinstance(event, RebalanceStarted))
        one = Open(started=started, subjects=frozenset(), grade=Grade.RECORDED)
        verdicts.would(one, "")
        if control_first:
            verdicts.control.would(one, "")
            assert not list(verdicts.ready())
        for item in ended:
            verdicts.feed(item, is_within=True)
        if not control_first:
            assert not list(verdicts.ready())
            verdicts.control.would(one, "")
        (reported,) = verdicts.ready()
        assert (reported.verdict, reported.duration_ms is not None) == (WOULD, True)


def test_times_are_reported_as_if_the_clock_had_never_jumped() -> None:
    """The coordinator's clock was a day ahead for a part of the log: `whatif` corrects it as `why` does."""
    history = history_in(DATA / "clock-ahead-orders.jsonl", "orders")
    result = what_if(history, Alterations(is_static=True))
    began = [str(each.started_at) for each in result.rebalances]
    assert began == sorted(began)
    assert {each[:10] for each in began} == {"2026-11-28"}
    assert began == [str(instant(each.started_ms)) for each in rebalances(history.group_id, history.items)]
    assert {str(each.would_begin_at)[:10] for each in result.rebalances if each.would_begin_at} == {"2026-11-28"}
