"""An entity whose last record in the log is foreign is rewritten unchanged, without disturbing members."""

import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from muster.coordinator.group.commands import ConfigOperation, RewriteEntities
from muster.coordinator.group.configs import REGISTERED
from muster.coordinator.group.decide import Decision
from muster.events.causes import TEXTS, Cause
from muster.events.events import GroupAdvanced, GroupConfigured, InstanceRegistered, MemberRoleChanged
from muster.events.keys import EntityKind, RecordKey, decode_key
from muster.replay.results.event_texts import event_text
from tests.coordinator.group.harness import Harness, story
from tests.events.test_compaction_law import HISTORIES, Step, history, project
from tests.replay.played import history_of
from tests.replay.test_rerun import assert_same
from tests.replay.told import rebalances_of


def rewrite(h: Harness, *entities: tuple[EntityKind, str]) -> Decision:
    keys = tuple(RecordKey(h.group_id, kind, entity_id) for kind, entity_id in entities)
    return h.send(RewriteEntities(group_id=h.group_id, entities=keys))


def planned() -> Harness:
    h = Harness()
    h.stable_group(h.static("a"), h.dynamic("b"))
    h.set(members_registration_timeout_ms="60000")
    h.alter((REGISTERED, ConfigOperation.SET, "c"))
    return h


def test_each_kind_of_entity_is_written_again_as_it_is() -> None:
    """In one transition that ends with the group's own record; only the group's sequence number changes."""
    h = planned()
    before, dynamic = h.live, next(member for member in h.live.members.values() if member.group_instance_id is None)

    decision = rewrite(
        h,
        (EntityKind.STATIC_MEMBER, "a"),
        (EntityKind.DYNAMIC_MEMBER, dynamic.member_id),
        (EntityKind.REGISTRATION, "c"),
        (EntityKind.GROUP_CONFIG, ""),
    )

    cause = Cause.RECORD_OVERWRITTEN
    types = (MemberRoleChanged, MemberRoleChanged, InstanceRegistered, GroupConfigured, GroupAdvanced)
    assert story(decision.events) == [(event_type, cause) for event_type in types]
    assert decision.replies == ()
    assert h.live.seq == before.seq + 5
    for field in ("image", "members", "instances", "registrations", "config"):
        assert getattr(h.live, field) == getattr(before, field)
    assert project(h.records[-5:])[h.group_id].members == before.members, "these alone say all that they say"


def test_the_groups_own_record_is_written_once() -> None:
    """It ends each transition anyway."""
    h = planned()
    assert story(rewrite(h, (EntityKind.GROUP, "")).events) == [(GroupAdvanced, Cause.RECORD_OVERWRITTEN)]


def test_missing_entities_are_not_created() -> None:
    """A foreign record may have any key; deleted entities stay deleted, and no unknown group is created."""
    h = planned()
    named = (EntityKind.STATIC_MEMBER, "x"), (EntityKind.DYNAMIC_MEMBER, "a-1"), (EntityKind.REGISTRATION, "x")
    assert rewrite(h, *named, (EntityKind.PARTITION, "coordinator")).events == ()
    assert rewrite(Harness(), (EntityKind.GROUP, ""), (EntityKind.STATIC_MEMBER, "a")).group is None


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(steps=HISTORIES, number=st.integers(min_value=0, max_value=100))
def test_whatever_is_written_again_changes_nothing(steps: list[Step], number: int) -> None:
    """In every state of a group, including a rebalance; a rerun of its history decides the same."""
    h = history("orders", steps)
    before = h.group
    kept = sorted({record.key for record in h.records})
    entities = [decode_key(key) for key in kept[number % 7 :: 2]]
    rewrite(h, *((key.kind, key.entity_id) for key in entities))
    if before is not None:
        assert h.live == msgspec.structs.replace(before, seq=h.live.seq)


def test_the_replay_tool_reports_it_and_not_as_a_rebalance() -> None:
    """One line for each record; and a rerun of the rules decides the same."""
    h = planned()
    rebalances = len(rebalances_of(history_of(h)))
    rewrite(h, *((kind, name) for kind, name in ((EntityKind.REGISTRATION, "c"), (EntityKind.STATIC_MEMBER, "a"))))
    after = history_of(h)
    assert len(rebalances_of(after)) == rebalances
    text = TEXTS[Cause.RECORD_OVERWRITTEN]
    assert [event_text(happened.event) for happened in after.events][-3:] == [text] * 3
    h.leave_instance("a")
    assert_same(h)
