"""Settings that would be refused, and plays that would not end."""

from typing import Any

import msgspec
import pytest

from muster.coordinator.group.configs import DAY_MS
from muster.replay.whatif import play, played
from muster.replay.whatif.alterations import Alterations
from muster.replay.whatif.limits import SettingRefused
from muster.replay.whatif.verdict import Verdict, WhatIf
from tests.replay.lived import Deed, Settings, history_lived, live, started
from tests.replay.played import history_of
from tests.replay.whole import History, what_if

A_DEPLOYMENT: list[Deed] = [
    (5, "stop", "a"),
    (12, "start", "a"),
    (25, "stop", "b"),
    (32, "start", "b"),
    (45, "crash", "c"),
    (62, "start", "c"),
]
LIVED = live(A_DEPLOYMENT, Settings(is_static=False), until_s=90)


def without_its_coordinator(history: History) -> History:
    """Return the history without its coordinator's settings, as an export of a part may be."""
    return msgspec.structs.replace(history, items=tuple(history.events))


@pytest.mark.parametrize(
    ("refused", "text"),
    [
        ({"session_timeout_ms": 0}, "session.timeout.ms=0 would be refused: give 1 to"),
        ({"rebalance_timeout_ms": 0}, "rebalance.timeout.ms=0 would be refused: give 1 to"),
        ({"scale_up_delay_ms": DAY_MS + 1}, f"members.expansion.delay.ms={DAY_MS + 1} would be refused: give 0 to"),
    ],
)
def test_values_that_no_coordinator_accepts_are_refused_without_one(refused: dict[str, Any], text: str) -> None:
    """Before any of the history is read."""
    with pytest.raises(SettingRefused, match=text):
        what_if(without_its_coordinator(history_of(LIVED)), Alterations(**refused))


@pytest.mark.parametrize(("session_ms", "is_refused"), [(5_999, True), (6_000, False), (1_800_001, True)])
def test_a_session_that_the_recorded_coordinator_would_refuse_is_refused(session_ms: int, is_refused: bool) -> None:
    """Its limits are in the message; a history that does not record them is played."""
    history, other = history_lived(LIVED), Alterations(session_timeout_ms=session_ms)
    if is_refused:
        with pytest.raises(SettingRefused, match=r"give 6000 to 1800000 ms \(group\.min\.session\.timeout\.ms"):
            what_if(history, other)
    else:
        assert what_if(history, other).rebalances
    assert what_if(without_its_coordinator(history), other).rebalances


def verdicts_of_all(result: WhatIf) -> list[Verdict]:
    """Return the verdicts, after checking that each recorded rebalance has one."""
    assert len(result.rebalances) == started(LIVED)
    return [each.verdict for each in result.rebalances]


@pytest.mark.parametrize("rebalance_ms", [50, 300])
def test_members_that_are_not_awaited_do_not_loop_forever(rebalance_ms: int) -> None:
    """Each is dropped, returns, and makes the next one too late: the play is aborted, with the reason."""
    lived = live([(5, "start", "g")], Settings(is_static=False), until_s=90, begins="abcdef")
    result = what_if(history_of(lived), Alterations(rebalance_timeout_ms=rebalance_ms))
    assert len(result.rebalances) == started(lived)
    assert any(each.reason == played.CIRCLES for each in result.additional)
    assert len(result.additional) < 10


def test_short_sessions_cost_no_more_than_long_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """A play does not go through the sessions of live members: there may be a million of them, of 1 ms each."""
    monkeypatch.setattr(play, "DECISIONS_MAX", 200)
    history = without_its_coordinator(history_of(LIVED))
    assert not any(each.reason == play.TOO_LONG for each in what_if(history, Alterations()).rebalances)
    result = what_if(history, Alterations(session_timeout_ms=1))
    assert not any(each.reason == play.TOO_LONG for each in result.rebalances)


@pytest.mark.parametrize("most", [1, 5, 10, 20, 40])
def test_each_rebalance_has_a_verdict_if_plays_are_abandoned(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Including the one during which its play was aborted; none is delayed by one without a verdict."""
    monkeypatch.setattr(play, "DECISIONS_MAX", most)
    result = what_if(history_of(LIVED), Alterations(session_timeout_ms=60_000))
    assert Verdict.CANNOT_TELL in verdicts_of_all(result)
