"""A takeover is reported with both owners and the reason, as far as the log has them."""

import pytest

from muster.events.causes import Cause
from muster.events.events import CoordinatorReady
from muster.events.ownership import OwnershipEnd, OwnershipEndCause
from muster.replay.rebalances.rebalance import HappeningKind
from muster.replay.rebalances.takeovers import taken_over
from muster.replay.results.event_texts import event_text
from tests.replay.histories import Script
from tests.replay.rebalances.test_timeline import rebalances_in
from tests.replay.stories import a_night

REFUSED_MS = 1_795_000_000_123
REMOVED = OwnershipEnd(
    cause=OwnershipEndCause.GONE, removed_by="c:9", link_lost_ms=REFUSED_MS - 60, refused_ms=REFUSED_MS
)
SEEN = OwnershipEnd(cause=OwnershipEndCause.GONE, link_lost_ms=REFUSED_MS - 60, refused_ms=REFUSED_MS)


def end(cause: str) -> OwnershipEnd:
    return OwnershipEnd(cause=OwnershipEndCause(cause))


NO_MEMBER = "was no longer a member of the ownership group"
REFUSED = "refused connections at 2026-11-18 11:06:40 UTC"


@pytest.mark.parametrize(
    ("known", "which"),
    [
        (end("stopped"), "had released its partition cleanly"),
        (REMOVED, f"{REFUSED} and was removed by c:9"),
        (SEEN, f"{REFUSED} and {NO_MEMBER}"),
        (end("replaced"), "had lost its place in the ownership group to another process of its node id"),
        (end("no-member"), NO_MEMBER),
        (
            end("still-a-member"),
            "was still a member of the ownership group, and had not released its partition cleanly",
        ),
    ],
)
def test_each_cause_has_its_words(known: OwnershipEnd, which: str) -> None:
    assert taken_over("b:2", "a:1", known, with_time=True) == f"b:2 took over from a:1, which {which}"


@pytest.mark.parametrize("known", [None, end("unknown")])
def test_an_unknown_takeover_has_no_reason(known: OwnershipEnd | None) -> None:
    assert taken_over("b:2", "a:1", known) == "b:2 took over from a:1"


def test_a_process_of_the_same_name_may_be_another_one() -> None:
    """In a container all processes have the same name; what is not known is not reported."""
    assert taken_over("m:1", "m:1", None) is None
    assert taken_over("m:1", "m:1", end("taken-back")) == "m:1 took its partition back after it had lost the log"
    assert taken_over("m:1", "m:1", end("stopped")) == (
        "m:1 took over from a former process of that name, which had released its partition cleanly"
    )


def a_takeover(script: Script, owner: str, known: OwnershipEnd | None) -> str:
    """Return the takeover's sentence beside the rebalance after it."""
    script.wait(100).coordinator(owner, took_ms=90, end=known)
    script.start(script.rejoined(script.of("billing-1"), Cause.LEADER_REJOINED))
    takeover = rebalances_in(script)[-1].avoided[-1]
    assert takeover.kind is HappeningKind.COORDINATOR_TAKEOVER
    return takeover.text


@pytest.mark.parametrize(
    ("known", "how"),
    [
        (None, "ended without a clean shutdown"),
        (end("unknown"), "ended without a clean shutdown"),
        (REMOVED, "refused connections and was removed by c:9"),
        (end("no-member"), NO_MEMBER),
    ],
)
def test_a_rebalance_is_shown_with_its_takeover(known: OwnershipEnd | None, how: str) -> None:
    script = a_night()
    assert a_takeover(script, "coordinator-c:300", known) == (
        f"the coordinator coordinator-b:200 {how}; coordinator-c:300 was ready in 90 ms, and 2 members continued"
    )


def test_a_rebalance_is_shown_with_the_owner_that_only_lost_the_log() -> None:
    """And for another process of the same name, if that is known."""
    owner = "coordinator-b:200"
    back = a_takeover(a_night(), owner, end("taken-back"))
    assert back.startswith(f"the coordinator {owner} lost partition 3 of the event log, which could not be written; it")
    assert a_takeover(a_night(), owner, end("replaced")).startswith(
        f"the coordinator {owner} had lost its place in the ownership group to another process of its node id; it was"
    )


def test_history_shows_it_with_the_event() -> None:
    script = a_night().coordinator("coordinator-c:300", took_ms=90, end=REMOVED)
    (ready,) = (event for event in script.transitions[-1][1] if isinstance(event, CoordinatorReady))
    assert event_text(ready).endswith(
        "; coordinator-c:300 took over from coordinator-b:200, which refused connections and was removed by c:9"
    )
