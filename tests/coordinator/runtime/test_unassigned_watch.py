"""The watch over unassigned partitions: since when, the log lines, and when a group is asked to rebalance."""

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any

import pytest
from structlog.testing import capture_logs

from muster.coordinator.group import unassigned
from muster.coordinator.group.commands import RebalanceUnassigned
from muster.coordinator.group.unassigned import ASKED_MAX
from muster.coordinator.load import slices
from muster.coordinator.load.slices import Slices
from muster.coordinator.log_throttle import NAMES_MAX
from muster.coordinator.observability.metrics import REGISTRY
from muster.coordinator.runtime import unassigned_watch
from muster.coordinator.runtime.unassigned_watch import REPORT_AFTER_MS, UnassignedWatch
from muster.events.consumer_protocol import encode_assignment
from muster.events.state import Group
from muster.events.steps import ENTRIES_AT_ONCE
from tests.coordinator.group.client import protocols, subscription
from tests.coordinator.group.harness import Harness
from tests.coordinator.group.test_unassigned import BOTH_TOPICS, configured, rejoin, sync

MINUTE_MS = 60_000


class Stage:
    """A group, its topics, and a clock that the test moves."""

    def __init__(self, h: Harness, **topics: int) -> None:
        self.h = h
        self.topics = topics
        self.others: Sequence[Harness] = ()
        self.wanted: Sequence[str] = ()
        self.now_ms = 0
        self.watch = UnassignedWatch(self, self, Slices(), lambda: self.now_ms)

    def want(self, topics: Sequence[str]) -> None:
        self.wanted = topics

    def of(self, topic: str) -> int | None:
        return self.topics.get(topic)

    def groups(self) -> list[Group]:
        return [each.live for each in (*self.others, self.h)]

    def rebalance_unassigned(self, command: RebalanceUnassigned) -> None:
        self.h.send(command)

    def look(self, *, after_ms: int = 0) -> list[Any]:
        """Check, and return the log lines."""
        self.now_ms += after_ms
        with capture_logs() as lines:
            asyncio.run(self.watch.check())
        return lines


def test_without_the_config_it_is_logged_once_and_no_rebalance_requested() -> None:
    """After longer than clients take to notice by themselves."""
    h, _, _ = configured("0")
    stage = Stage(h, orders=9)
    assert stage.look() == []
    assert stage.look(after_ms=REPORT_AFTER_MS - 1) == []
    (line,) = stage.look(after_ms=1)
    assert (line["group_id"], line["topics"]) == ("grown", {"orders": "6 to 8"})
    assert line["way_out"].startswith("muster members rebalance grown, or set members.unassigned.rebalance.delay.ms")
    assert stage.look(after_ms=MINUTE_MS) == []
    (status,) = stage.watch.unassigned
    assert (status.partitions, status.numbers, status.unassigned_ms) == (3, "6 to 8", REPORT_AFTER_MS + MINUTE_MS)
    assert h.live.leader_id is not None
    assert line["leader"] == h.live.members[h.live.leader_id].name
    assert REGISTRY.get_sample_value("muster_unassigned_partitions") == 3
    assert h.events[-1].why.cause.value == "group-configured"


def test_with_the_config_one_rebalance_is_requested_and_the_rest_logged() -> None:
    h, a, b = configured(str(MINUTE_MS))
    stage = Stage(h, orders=8)
    stage.look()
    stage.look(after_ms=MINUTE_MS - 1)
    assert h.state == "Stable"
    stage.look(after_ms=1)
    assert h.state == "PreparingRebalance"
    rejoin(h, a, b)  # the leader has not noticed even so
    generation_id = h.live.generation_id
    stage.look()
    (line,) = stage.look(after_ms=REPORT_AFTER_MS)
    assert "the leader did not assign them: restart the leader" in line["way_out"]
    assert h.live.generation_id == generation_id
    assert h.state == "Stable"


def test_a_reassigned_topic_is_settled_in_the_log() -> None:
    h, a, b = configured(str(MINUTE_MS))
    stage = Stage(h, orders=8)
    stage.look()
    stage.look(after_ms=MINUTE_MS)
    rejoin(h, a, b, partitions=8)
    assert h.live.config.rebalanced_for
    stage.look()
    assert not h.live.config.rebalanced_for
    assert stage.watch.unassigned == ()


def test_a_rebalance_of_the_group_restarts_the_time() -> None:
    """The leader had another chance, and may need its next Metadata."""
    h, a, b = configured(str(MINUTE_MS))
    stage = Stage(h, orders=8)
    stage.look()
    (a if a.is_leader else b).join()
    rejoin(h, a, b)
    stage.look(after_ms=MINUTE_MS)
    assert h.state == "Stable"
    stage.look(after_ms=MINUTE_MS)
    assert h.state == "PreparingRebalance"


def test_the_topics_that_members_subscribe_are_counted_and_unknown_ones_lack_nothing() -> None:
    h, _, b = configured("1")
    b.restarted(protocols=BOTH_TOPICS).join()
    stage = Stage(h, orders=6)
    stage.look()
    stage.look(after_ms=REPORT_AFTER_MS)
    assert set(stage.wanted) == {"orders", "payments"}
    assert h.state == "Stable"
    stage.topics["payments"] = 2
    stage.look()
    stage.look(after_ms=MINUTE_MS)
    assert h.state == "PreparingRebalance"


def test_a_topic_with_temporarily_unknown_partitions_is_not_settled() -> None:
    """The group was asked for it, and is not asked again when the cluster responds again."""
    h, a, b = configured("1")
    stage = Stage(h, orders=8)
    stage.look()
    stage.look(after_ms=1)
    rejoin(h, a, b)
    del stage.topics["orders"]
    stage.look()
    assert h.live.config.rebalanced_for
    stage.topics["orders"] = 8
    stage.look()
    stage.look(after_ms=MINUTE_MS)
    assert h.state == "Stable"


def test_while_muster_will_still_request_a_rebalance_the_advice_says_so() -> None:
    h, _, _ = configured(str(2 * REPORT_AFTER_MS))
    stage = Stage(h, orders=7)
    stage.look()
    (line,) = stage.look(after_ms=REPORT_AFTER_MS)
    assert line["way_out"].startswith("Muster asks the group to rebalance after members.unassigned.rebalance.delay.ms")


def test_topics_of_groups_with_the_config_are_counted_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the limit of topics, those of groups without the config are left out."""
    monkeypatch.setattr(unassigned_watch, "TOPICS_MAX", 1)
    without = Harness(group_id="without")
    (a,) = without.form(without.static("a", protocols=protocols(metadata=subscription("audit"))))
    sync(without, a, topic="audit")
    with_config, _, _ = configured()
    stage = Stage(with_config, orders=6)
    stage.others = (without,)
    stage.look()
    assert stage.wanted == ("orders",)


def test_of_many_ranges_ten_are_shown_and_how_many_partitions_follow() -> None:
    """Every other partition of 30, then the last ten: fifteen ranges, the last of which is long."""
    h = Harness(group_id="gaps")
    (a,) = h.form(h.static("a"))
    a.sync({a.member_id: encode_assignment({"orders": range(1, 30, 2)})})
    stage = Stage(h, orders=40)
    stage.look()
    (line,) = stage.look(after_ms=REPORT_AFTER_MS)
    assert line["topics"] == {"orders": "0, 2, 4, 6, 8, 10, 12, 14, 16, 18 and 15 more"}


def test_topics_of_a_group_that_lack_share_one_line_which_names_them() -> None:
    h, _, b = configured("0")
    b.restarted(protocols=BOTH_TOPICS).join()
    stage = Stage(h, orders=7, payments=2)
    stage.look()
    (line,) = stage.look(after_ms=REPORT_AFTER_MS)
    assert line["topics"] == {"orders": "6", "payments": "0 to 1"}
    assert len(stage.watch.unassigned) == 2


def test_a_topic_that_lacks_within_a_minute_of_the_line_of_its_group_has_a_line_after_it() -> None:
    h, _, b = configured("0")
    b.restarted(protocols=BOTH_TOPICS).join()
    stage = Stage(h, orders=7)
    stage.look()
    stage.topics["payments"] = 2
    stage.look(after_ms=1_000)
    lines = [stage.look(after_ms=after_ms) for after_ms in (REPORT_AFTER_MS - 1_000, 1_000, MINUTE_MS, MINUTE_MS)]
    assert [[line["topics"] for line in each] for each in lines] == [
        [{"orders": "6"}],
        [],
        [{"payments": "0 to 1"}],
        [],
    ]


def test_of_many_topics_that_lack_ten_are_named_and_the_others_counted() -> None:
    topics = [f"topic-{number}" for number in range(15)]
    h = Harness(group_id="many")
    (a,) = h.form(h.static("a", protocols=protocols(metadata=subscription(*topics))))
    a.sync({a.member_id: encode_assignment({})})
    stage = Stage(h, **dict.fromkeys(topics, 1))
    stage.look()
    (line,) = stage.look(after_ms=REPORT_AFTER_MS)
    assert (len(line["topics"]), line["more_topics"]) == (NAMES_MAX, 5)
    assert stage.look(after_ms=MINUTE_MS) == []


def test_unassigned_topics_beyond_the_limit_of_an_event_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Members may subscribe to as many as their requests can hold."""
    monkeypatch.setattr(unassigned_watch, "ASKED_MAX", 3)
    topics = [f"topic-{number}" for number in range(5)]
    h = Harness(group_id="many")
    (a,) = h.form(h.static("a", protocols=protocols(metadata=subscription(*topics))))
    a.sync({a.member_id: encode_assignment({})})
    stage = Stage(h, **dict.fromkeys(topics, 1))
    stage.look()
    stage.look(after_ms=REPORT_AFTER_MS)
    assert [each.topic for each in stage.watch.unassigned] == topics[:3]


def test_the_advice_is_manual_if_no_more_topics_can_be_requested(monkeypatch: pytest.MonkeyPatch) -> None:
    """Muster asks for no other topic before one of those is assigned."""
    for module in (unassigned, unassigned_watch):
        monkeypatch.setattr(module, "ASKED_MAX", 1)
    h, a, b = configured(str(MINUTE_MS))
    b = b.restarted(protocols=BOTH_TOPICS)
    b.join()
    stage = Stage(h, orders=6, payments=2)
    stage.look()
    stage.look(after_ms=MINUTE_MS)
    rejoin(h, a, b)
    stage.topics["orders"] = 7
    stage.look()
    (line,) = stage.look(after_ms=REPORT_AFTER_MS)
    assert line["topics"] == {"orders": "6"}
    assert line["way_out"].startswith("muster members rebalance grown")


def test_a_topic_that_keeps_growing_is_logged_and_requested() -> None:
    """Its first new partitions have waited for long; otherwise each new count would restart the time."""
    h, _, _ = configured("0")
    stage = Stage(h, orders=7)
    lines = []
    for _ in range(10):
        lines += stage.look(after_ms=MINUTE_MS)
        stage.topics["orders"] += 1
    (line,) = lines
    assert (line["topics"], line["seconds"]) == ({"orders": "6 to 12"}, REPORT_AFTER_MS // 1_000)
    h.set(members_unassigned_rebalance_delay_ms=str(MINUTE_MS))
    stage.look()
    assert h.state == "PreparingRebalance"


def test_a_topic_that_shrinks_is_a_new_beginning() -> None:
    """It was deleted and created again: the missing partitions have not been missing for long."""
    h, _, _ = configured("0")
    stage = Stage(h, orders=9)
    stage.look()
    stage.topics["orders"] = 8
    assert stage.look(after_ms=REPORT_AFTER_MS) == []


def test_a_kept_topic_is_requested_once_although_its_count_is_known_only_at_times() -> None:
    """Brokers may be unavailable for a while; the leader assigns it again to the member that does not subscribe it."""
    h, a, b = configured("1000")
    leader, other = (a, b) if a.is_leader else (b, a)
    other = other.restarted(protocols=protocols(metadata=subscription("payments")))
    other.join()
    stage = Stage(h, orders=6)
    started = 0
    for orders in (6, None, 6, None, 6, None):
        stage.topics = {} if orders is None else {"orders": orders}
        for _ in range(2):
            stage.look(after_ms=MINUTE_MS)
            if h.state == "PreparingRebalance":
                started += 1
                rejoin(h, leader, other)
    assert started == 1


def test_made_up_topics_in_an_assignment_are_few_in_the_log() -> None:
    """A leader may assign any topic; the ones that Muster asks for fit into one event."""
    h = Harness(group_id="made-up")
    (a,) = h.form(h.static("a"))
    a.sync({a.member_id: encode_assignment({f"made-up-{number}": [0] for number in range(5_000)})})
    h.set(members_unassigned_rebalance_delay_ms="1")
    stage = Stage(h)
    stage.look()
    stage.look(after_ms=1)
    assert len(h.live.config.rebalanced_for) == ASKED_MAX


def test_other_work_continues_while_a_large_group_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slice ends after each of its members, however short slices are."""
    monkeypatch.setattr(slices, "SLICE_S", 0.0)
    topics = [f"topic-{number}" for number in range(2_000)]
    h = Harness(group_id="large")
    members = h.form(*(h.static(name, protocols=protocols(metadata=subscription(*topics))) for name in "abcdefgh"))
    sync(h, *members)
    turns = asyncio.run(_turns_while(Stage(h, orders=6).watch.check()))
    assert turns >= len(members)


def test_other_work_continues_while_unstable_groups_are_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    """There may be a million groups that only commit offsets, which are always Empty."""
    monkeypatch.setattr(slices, "SLICE_S", 0.0)
    h, a, b = configured("0")
    a.leave()
    b.leave()
    assert h.state == "Empty"
    stage = Stage(h)
    stage.others = [h] * (10 * ENTRIES_AT_ONCE)
    assert asyncio.run(_turns_while(stage.watch.check())) >= 10


async def _turns_while(work: Coroutine[Any, Any, None]) -> int:
    """The number of turns that other work had until this one completed."""
    looking, turns = asyncio.create_task(work), 0
    while not looking.done():
        await asyncio.sleep(0)
        turns += 1
    return turns
