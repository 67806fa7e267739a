"""Single rebalances: the output for the story of one night, and the sentences for each cause."""

import msgspec
import pytest

from muster.events.avro.codec import records_of
from muster.events.causes import TEXTS, TRIGGERS, Cause
from muster.events.events import MemberRemoved
from muster.events.records import FORMAT_LEVEL, StoredRecord
from muster.replay.rebalances.rebalance import HappeningKind, Outcome
from muster.replay.rebalances.wording import headline
from muster.replay.results.event_texts import event_text
from muster.replay.results.groups import Overview
from muster.replay.results.why import generation_of
from tests.coordinator.group.client import protocols
from tests.coordinator.group.harness import Harness
from tests.replay.golden import assert_golden
from tests.replay.histories import Script
from tests.replay.played import history_of
from tests.replay.stories import a_night
from tests.replay.told import last_rebalance, printed_rebalances, rebalances_of, since

NIGHT = rebalances_of(a_night().history())


def test_a_night_matches_its_golden() -> None:
    """All rebalances of the story are printed exactly as in the golden file."""
    assert_golden("rebalances.txt", printed_rebalances(NIGHT))


@pytest.mark.parametrize("width", [40, 80, 140])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    """The table folds its cells to the width it is given."""
    assert max(map(len, printed_rebalances(NIGHT, width).splitlines())) <= width


def test_an_expiry_names_the_silent_member() -> None:
    """The trigger names the silent member, its silence, and the timeout."""
    expiry = NIGHT[1]
    assert headline(expiry) == (
        "Generation 1 -> 2: static member 'billing-2' (10.0.0.7, client rdkafka) was not heard from for 45.0 s "
        "(session timeout 45 s); 1 more cause folded in"
    )
    assert expiry.trigger.who[0].last_seen == "2026-11-21T02:12:45.165Z"
    assert expiry.trigger.who[0].longest_silence_ms == 3_200


@pytest.mark.parametrize("cause", [Cause.GROUP_DELETED, Cause.GROUP_EXPIRED])
def test_the_end_of_a_group_follows_its_last_rebalance(cause: Cause) -> None:
    """With its cause, for a user who wonders where the group is."""
    script = Script().created()
    script.start(script.joined(script.member("a"))).complete(cause=Cause.INITIAL_DELAY_ELAPSED)
    script.stabilize({"a": {"orders": [0]}})
    script.start(script.removed(script.of("a"), Cause.MEMBER_LEFT)).emptied().deleted(cause)
    assert [(end.kind, end.text) for end in since(script.history())] == [(HappeningKind.GROUP_DELETED, TEXTS[cause])]


def test_events_that_started_no_rebalance_are_listed_in_order() -> None:
    """Restarts, takeovers and fences between two rebalances, with a count of suppressed repetitions."""
    assert [(happening.kind, happening.times) for happening in NIGHT[1].avoided] == [
        (HappeningKind.STATIC_RESTART, 1),
        (HappeningKind.STATIC_RESTART, 1),
        (HappeningKind.COORDINATOR_TAKEOVER, 1),
        (HappeningKind.MEMBER_FENCED, 5),
    ]


def test_a_superseded_rebalance_says_so() -> None:
    """Generation 3 never had an assignment."""
    superseded = NIGHT[2]
    assert superseded.outcome is Outcome.SUPERSEDED
    assert superseded.movement is None
    assert headline(superseded).endswith("(superseded by the next one before it had an assignment)")


def test_a_running_rebalance_has_the_generation_that_it_is_to_lead_to() -> None:
    """With the members that it waits for."""
    script = a_night()
    script.wait(1_000).start(script.removed(script.of("billing-1"), Cause.SESSION_EXPIRED, silent_ms=46_000))
    running = rebalances_of(script.history())[-1]
    assert running.outcome is Outcome.RUNNING
    assert generation_of(running) == 5
    assert [member.group_instance_id for member in running.join_phase.awaited] == ["billing-3"]


@pytest.mark.parametrize("cause", sorted(TRIGGERS))
def test_every_trigger_has_a_sentence_that_names_no_placeholder(cause: Cause) -> None:
    """For each cause the headline is English, with and without a known member."""
    script = a_night()
    member = script.of("billing-1")
    script.start(script.rejoined(member, cause))
    story = Script().created()
    story.start(why=story.why_of_timer(cause))
    for each in (script, story):
        sentence = headline(rebalances_of(each.history())[-1])
        assert "{" not in sentence
        assert "None" not in sentence


def test_a_removal_by_an_administrator_names_the_requester() -> None:
    """The request came from another host than the member's."""
    script = a_night()
    removed = script.removed(script.of("billing-1"), Cause.MEMBER_REMOVED_BY_ADMIN)
    requested = script.why(Cause.MEMBER_REMOVED_BY_ADMIN)
    script.start(msgspec.structs.replace(removed, why=requested))
    trigger = rebalances_of(script.history())[-1].trigger
    assert trigger.text == (
        "static member 'billing-1' (10.0.0.6, client rdkafka) was removed by its instance id, as an administrator "
        "does, asked for by client adminclient-1 at 10.0.0.99, User:billing"
    )
    assert trigger.request is not None
    assert trigger.request.client_host == "/10.0.0.99"


def test_several_members_that_leave_at_once_are_one_trigger() -> None:
    """A batch is one cause with several members."""
    script = a_night()
    script.start(
        script.removed(script.of("billing-1"), Cause.SYNC_TIMED_OUT),
        script.removed(script.of("billing-3"), Cause.SYNC_TIMED_OUT),
    )
    trigger = rebalances_of(script.history())[-1].trigger
    assert [member.group_instance_id for member in trigger.who] == ["billing-1", "billing-3"]
    assert trigger.text == ("2 static members ('billing-1' and 'billing-3') did not ask for their assignment in time")


def test_a_client_cannot_write_to_the_terminal() -> None:
    """Escape sequences and markup from clients are printed, not executed."""
    script = Script().created()
    script.start(script.joined(script.member("x", host="/10.0.0.1"), reason="\x1b[2J[bold]boo[/bold]\x07"))
    table = printed_rebalances(rebalances_of(script.history()))
    assert "\x1b" not in table
    assert "\\x1b[2J[bold]boo[/bold]\\x07" in table.replace("\n", "")


def test_the_release_of_a_group_names_all_its_members_and_the_requester() -> None:
    """One cause for all of them, and how it ended; the history has the cause for each member."""
    h = Harness()
    h.stable_group(h.static("a"), h.dynamic("b"))
    h.release()
    rebalance = last_rebalance(h)
    text = "the group was released to the upstream cluster, asked for by client admin at 10.0.0.9, User:admin"
    assert headline(rebalance) == f"Generation 1 -> 2: {text} (the group was empty then)"
    assert [member.client_id for member in rebalance.trigger.who] == ["b", "app-a"]
    removals = [event_text(event) for event in h.events if isinstance(event, MemberRemoved)]
    assert removals[1] == f"static member 'a' (10.0.0.1, client app-a) was removed: {text}"


def test_a_release_by_setting_does_start_something() -> None:
    """It is one change: the setting is part of the trigger, and not a happening that started no rebalance."""
    h = Harness()
    h.stable_group(h.static("a"), h.dynamic("b"))
    h.set(members_coordinator="upstream")
    rebalance = last_rebalance(h)
    assert rebalance.trigger.cause is Cause.GROUP_RELEASED
    assert rebalance.trigger.planned is not None
    assert [change.name for change in rebalance.trigger.planned.configs] == ["members.coordinator"]
    assert rebalance.avoided == ()


def test_the_coordinator_of_a_group_is_in_its_line() -> None:
    """The cluster upstream from a release until it is taken back; after the loss of the shadow until a member joins."""

    def coordinator(h: Harness) -> str:
        overview = Overview()
        for offset, record in enumerate(records_of(h.events, FORMAT_LEVEL)):
            overview.take([StoredRecord(0, offset, 0, record.key, record.value)])
        (line,) = overview.result("harness").groups
        return line.coordinator

    h = Harness()
    h.stable_group(h.static("a"), h.dynamic("b"))
    assert coordinator(h) == "muster"
    h.set(members_coordinator="upstream")
    assert coordinator(h) == "upstream"
    h.set(members_coordinator="muster")
    h.stable_group(h.static("a"))
    assert coordinator(h) == "muster"
    h.release()
    assert coordinator(h) == "upstream"
    h.stable_group(h.static("a"))
    assert coordinator(h) == "muster"


def test_a_release_during_a_rebalance_is_folded_in_with_all_members() -> None:
    """It also ends the join phase; standbys leave with the others."""
    h = Harness()
    a, _ = h.stable_group(h.static("a"), h.static("b"))
    h.set(target_group_size="2")
    h.static("c").join()
    a.join(protocols=protocols("range", metadata=b"new"))
    h.release()
    rebalance = last_rebalance(h)
    (folded,) = rebalance.folded
    assert (folded.cause, len(folded.who)) == (Cause.GROUP_RELEASED, 3)
    assert rebalance.meanwhile == ()
    assert "until the group was released to the upstream cluster" in printed_rebalances([rebalance])


def test_a_join_phase_without_awaited_members_is_left_out() -> None:
    """The last member left, and the group was empty at once."""
    h = Harness()
    (only,) = h.stable_group(h.static("only"))
    h.sleep(100)
    only.leave()
    rebalance = last_rebalance(h)
    assert rebalance.outcome is Outcome.EMPTIED
    assert "Join phase" not in printed_rebalances([rebalance])


def test_a_restarted_initial_rebalance_delay_is_explained() -> None:
    """It restarts for each member that joins, except in the last part of it."""
    h = Harness(initial_rebalance_delay_ms=3_000)
    h.static("web-0", rebalance_timeout_ms=60_000).join()
    h.sleep(1_000)
    h.static("web-1", rebalance_timeout_ms=60_000).join()
    h.sleep(5_000)
    text = " ".join(printed_rebalances(rebalances_of(history_of(h)), width=200).split())
    assert "Join phase 6.0 s, until the initial rebalance delay of 3 s was over; it restarted as web-1 joined" in text


def test_an_initial_delay_is_not_a_limit_of_the_join_phase() -> None:
    """Joins extend it up to the rebalance timeout (KIP-134), and the output says so while it runs."""
    h = Harness(initial_rebalance_delay_ms=3_000)
    h.static("web-0", rebalance_timeout_ms=60_000).join()
    h.sleep(1_000)
    text = " ".join(printed_rebalances([last_rebalance(h)], width=300).split())
    delay = "the initial rebalance delay of 3 s, which joins extend up to the rebalance timeout"
    assert f"Join phase waiting for {delay}" in text
