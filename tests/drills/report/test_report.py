"""The values of a report, and their presentation: tables, lanes, moments, a page."""

import re

import msgspec
import pytest
from rich.console import Console

from muster.drills.measuring.answers import Acknowledged, Asked, Kind, Place
from muster.drills.report.html import document
from muster.drills.report.making import result
from muster.drills.report.result import Result
from muster.drills.report.table import headline, print_result
from muster.drills.report.timeline import lanes, members_waits, moments
from muster.replay.html.chart import SpanOnPage, Stretch
from tests.drills.report.recorded import FAULT_MS, GROUP, NAMES, rebalanced, recorded, requests


def printed(reported: Result) -> str:
    console = Console(width=200, record=True, file=None, force_terminal=False)
    with console.capture() as capture:
        print_result(reported, console)
    return capture.get()


def test_a_drill_without_noticed_effects_meets_its_goals() -> None:
    """With the takeover by its phases, and the errors that clients hid."""
    reported = result(recorded())
    assert reported.is_met
    assert [(each.name, each.measured) for each in reported.goals] == [
        ("rebalances caused", 0),
        ("errors that members noticed", 0),
        ("events lost", 0),
        ("commits lost", 0),
        ("heartbeats: longest time without an answer", 1_300),
        ("commits: longest time without an answer", 2_600),
    ]
    (takeover,) = reported.takeovers
    assert (takeover.former_owner, takeover.owner) == (None, "process 2")
    assert (takeover.detection_ms, takeover.claim_ms, takeover.reading_ms) == (700, 0, 400)
    assert takeover.answering_ms == 200
    assert [(each.kind, each.error, each.times) for each in reported.hidden] == [
        ("heartbeats", "NO_ANSWER", 2),
        ("commits", "NO_ANSWER", 2),
    ]
    assert headline(reported) == "takeover: all goals are met, and no member noticed"


def test_a_rebalance_after_the_fault_is_counted_and_explained() -> None:
    """With its explanation from `muster replay why`; those that formed the group came earlier."""
    reported = result(recorded(rebalanced()))
    (rebalance,) = reported.rebalances
    assert (rebalance.group_id, rebalance.generations) == (GROUP, "1 → 2")
    assert rebalance.incident == "crash"
    assert not reported.is_met
    assert headline(reported) == "takeover: 1 goal not met: rebalances caused"
    assert "static-0" in printed(reported)
    assert rebalance.why in printed(reported)


def test_lost_items_are_named() -> None:
    """A membership, and a commit."""
    nobody = Place(group_id=GROUP, generation_id=1, member_id="nobody", assignment=b"x")
    acknowledged = Acknowledged(places={nobody}, joins=1, commits={(GROUP, 1): 4}, commit_count=4)
    reported = result(recorded(acknowledged=acknowledged))
    assert headline(reported) == "takeover: 2 goals not met: events lost, commits lost"
    assert f"{GROUP}: nobody in generation 1, with its assignment" in printed(reported)
    assert f"{GROUP}, partition 1: 4 was acknowledged, nothing is there" in printed(reported)


def test_of_many_that_are_missing_some_are_named() -> None:
    """The others are counted."""
    nobody = {Place(group_id=GROUP, generation_id=1, member_id=f"nobody-{number}") for number in range(15)}
    reported = printed(result(recorded(acknowledged=Acknowledged(places=nobody, joins=15))))
    assert "15 missing: " in reported
    assert len(re.findall(r"nobody-\d+", reported)) == 12
    assert " and 3 more" in reported


def test_an_error_does_not_end_a_takeover() -> None:
    """A member got a response, but an error."""
    early = Asked(
        kind=Kind.HEARTBEAT,
        group_id=GROUP,
        member="member-0",
        began_ms=FAULT_MS + 1_110,
        ended_ms=FAULT_MS + 1_150,
        error="UNKNOWN_MEMBER_ID",
    )
    (takeover,) = result(recorded(asked=(*requests(), early))).takeovers
    assert takeover.answering_ms == 200


def test_the_json_has_plain_values() -> None:
    """They can be read back unchanged."""
    reported = result(recorded())
    assert msgspec.json.decode(msgspec.json.encode(reported), type=Result) == reported


def test_tables_show_the_verdict_first_and_every_phase() -> None:
    text = printed(msgspec.structs.replace(result(recorded()), left=("topic x: it is stuck",)))
    assert text.startswith("takeover: all goals are met")
    for phase in ("detection", "claim", "reading", "answering", "all phases"):
        assert phase in text
    assert "handing over" not in text
    assert "Errors that members saw: nothing." in text
    assert "Not cleaned up: topic x: it is stuck" in text


def test_a_lane_has_owners_and_waiting_members() -> None:
    """A process owns nothing from its death on; a member's waits are between its bars."""
    reported = recorded()
    waited = members_waits(reported.asked, fault_ms=FAULT_MS, end_ms=reported.ended_ms)
    first, second, member, _ = lanes(reported, waited)
    begin_ms, end_ms, ready_ms = reported.began_ms, reported.ended_ms, FAULT_MS + 1_100
    assert (first.name, first.marks) == ("process 1", ((FAULT_MS, "lost"),))
    assert first.stretches == (Stretch(begin_ms, FAULT_MS, 1), Stretch(FAULT_MS, end_ms, 0))
    assert second.stretches == (Stretch(begin_ms, ready_ms, 0), Stretch(ready_ms, end_ms, 1))
    assert member.name == "static-0 member-0"
    assert member.silences == (SpanOnPage(FAULT_MS, FAULT_MS + 2_600),)
    assert member.stretches == (Stretch(begin_ms, FAULT_MS, 1), Stretch(FAULT_MS + 2_600, end_ms, 1))


def test_moments_are_the_fault_its_phases_and_the_longest_waits() -> None:
    """In the order in which they begin, each with its lanes."""
    reported = recorded()
    made = result(reported)
    waited = members_waits(reported.asked, fault_ms=FAULT_MS, end_ms=reported.ended_ms)
    found = moments(made, lanes(reported, waited))
    assert [each.kind for each in found] == [
        "drill", "detection", "heartbeats", "commits", "claim", "reading", "answering",
    ]  # fmt: skip
    by_kind = {each.kind: each for each in found}
    assert (by_kind["drill"].begin_ms, by_kind["drill"].end_ms) == (FAULT_MS, FAULT_MS + 2_700)
    assert by_kind["drill"].lanes == (0,)
    assert by_kind["reading"].lanes == (1,)
    assert (by_kind["reading"].begin_ms, by_kind["reading"].end_ms) == (FAULT_MS + 700, FAULT_MS + 1_100)
    assert [each.kind for each in moments(result(recorded(rebalanced())), ())].count("rebalance") == 1


@pytest.mark.parametrize("is_met", [True, False])
def test_a_page_is_complete_and_makes_no_requests(is_met: bool) -> None:
    reported = recorded() if is_met else recorded(rebalanced())
    page = document(result(reported), reported, made_ms=FAULT_MS + 60_000)
    assert ("all goals met" in page) == is_met
    assert "kill -9 of process 1" in page
    assert NAMES.run in page
    assert not re.findall(r"(?:src|href)=[\"'](?!#)", page)


def test_names_on_a_page_are_only_text() -> None:
    reported = recorded(service="<script>alert(1)</script>")
    page = document(result(reported), reported, made_ms=0)
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert" in page
