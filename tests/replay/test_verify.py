"""`verify` reports inconsistencies with their position, and none in histories that the rules made."""

import gc
import random
from collections.abc import Callable
from typing import Any, Final

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.events.avro.codec import records_of
from muster.events.causes import Cause
from muster.events.events import (
    AnyEvent,
    AnyRecordedEvent,
    CoordinatorElected,
    CoordinatorReady,
    GroupEvent,
    MemberAssigned,
    MemberEvent,
    PartitionEvent,
)
from muster.events.ids import GroupId, GroupInstanceId, MemberId
from muster.events.keys import EntityKind, RecordKey, encode_key
from muster.events.records import FORMAT_LEVEL, Record, StoredRecord
from muster.events.state import Group, GroupState, MemberRole, Registration
from muster.replay.history.items import Coordinated, Happened
from muster.replay.history.transitions import Transition, Transitions
from muster.replay.history.window import WHOLE, AtTime, Window
from muster.replay.verify import group_checks
from muster.replay.verify.finding import Check, Verified
from muster.replay.verify.group_check import GroupCheck
from muster.replay.verify.invariants import broken_invariants, invariants_broken_by
from muster.replay.verify.verification import Verification
from tests.coordinator.group.client import Client
from tests.coordinator.group.harness import Harness
from tests.coordinator.group.test_cost import Work
from tests.replay.lived import Unchecked
from tests.replay.play import MembershipPlay, Play
from tests.replay.played import history_of, stable
from tests.replay.stories import a_night
from tests.replay.written import BROKEN_KEY, PARTITIONS, broken_value


def events_of(harness: Harness) -> list[AnyRecordedEvent]:
    """Return the harness's events and its coordinators', each with the epoch of its decision."""
    items = [item for item in history_of(harness).items if isinstance(item, Happened | Coordinated)]
    if len(items) > 1 and isinstance(items[1], Coordinated):
        del items[0]  # an owner without any event
    epochs: list[AnyRecordedEvent] = []
    for position, item in enumerate(items):
        event = item.event
        if isinstance(event, PartitionEvent):
            following = next((each.event for each in items[position:] if isinstance(each, Happened)), event)
            event = msgspec.structs.replace(event, owner_epoch=following.owner_epoch)
        epochs.append(event)
    return epochs


def stored(events: list[AnyRecordedEvent], level: int = FORMAT_LEVEL) -> list[StoredRecord]:
    """Return the records as a log keeps them, at one offset each, with tombstones."""
    records = [record for event in events for record in records_of([event], level)]
    return [StoredRecord(0, offset, 0, record.key, record.value) for offset, record in enumerate(records)]


def verified(
    records: list[StoredRecord], partitions: int = 1, *, window: Window = WHOLE, wanted: str | None = None
) -> Verified:
    verification = Verification(partitions, window=window, wanted=wanted)
    for record in records:
        verification.feed(record)
    return verification.result("memory")


def appended(records: list[StoredRecord], *more: Record) -> list[StoredRecord]:
    end = records[-1].offset + 1
    return records + [StoredRecord(0, end + i, 0, record.key, record.value) for i, record in enumerate(more)]


def checks(result: Verified) -> list[tuple[Check, int | None]]:
    return [(finding.check, finding.seq) for finding in result.findings]


def played() -> Harness:
    """A group that forms, loses a member, and continues under another owner."""
    h = Harness()
    a, _ = h.stable_group(h.static("a"), h.static("b"))
    h.leave_instance("b")
    a.join()
    h.sync_all(a)
    h.takeover()
    h.static("c").join()
    a.join()
    return h


def test_events_made_by_the_rules_verify() -> None:
    """Each event is decided again as recorded."""
    h = played()
    result = verified(stored(events_of(h)))
    assert result.findings == ()
    assert result.found == 0
    assert result.events == result.decided_again == len(h.events)
    assert result.compacted == ()


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(5, 40), st.booleans())
def test_whatever_the_rules_make_is_well(seed: int, steps: int, planned: bool) -> None:
    """Random requests, silences, takeovers, plans."""
    play = (MembershipPlay if planned else Play)(random.Random(seed))
    for _ in range(steps):
        play.step()
    result = verified(stored(events_of(play.harness)))
    assert result.findings == ()
    assert result.decided_again == len(play.harness.events)


def test_a_lost_event_is_found_and_a_compacted_one_is_reported() -> None:
    """A missing seq whose offset is missing too was compacted; otherwise an event was lost."""
    records = stored(events_of(played()))
    position = next(i for i, record in enumerate(records) if record.value is not None and i > 6)
    without = records[:position] + records[position + 1 :]
    compacted = verified(without)
    assert compacted.findings == ()
    assert ([each.missing for each in compacted.compacted], compacted.compacted_groups) == ([1], 1)
    closed_up = [msgspec.structs.replace(record, offset=offset) for offset, record in enumerate(without)]
    lost = verified(closed_up)
    assert [finding.check for finding in lost.findings] == [Check.SEQ]
    (finding,) = lost.findings
    assert (finding.expected, finding.found) == (f"seq {(finding.seq or 0) - 1}", f"seq {finding.seq}")
    assert finding.offset == position
    assert lost.compacted == ()


def test_a_forged_event_is_found_by_the_rules() -> None:
    """The finding has the field, the decision of the rules, and the recorded value."""
    events = events_of(played())
    position = next(i for i, event in enumerate(events) if isinstance(event, MemberAssigned))
    event = events[position]
    assert isinstance(event, MemberAssigned)
    events[position] = msgspec.structs.replace(
        event, member=msgspec.structs.replace(event.member, joined_ms=event.member.joined_ms + 1)
    )
    result = verified(stored(events))
    assert checks(result) == [(Check.RULES, event.seq)]
    (finding,) = result.findings
    assert finding.expected == f"MemberAssigned.member.joined_ms = {event.member.joined_ms}"
    assert finding.found == f"MemberAssigned.member.joined_ms = {event.member.joined_ms + 1}"


def test_a_broken_invariant_is_found() -> None:
    """The rules never decrease a generation, nor make two members with one instance id."""
    events = events_of(played())
    position = max(i for i, event in enumerate(events) if isinstance(event, MemberEvent))
    event = events[position + 1]
    assert isinstance(event, GroupEvent)
    group = msgspec.structs.replace(event.group, generation_id=0, leader_id=None)
    events[position + 1] = msgspec.structs.replace(event, group=group)
    found = {finding.check for finding in verified(stored(events)).findings}
    assert {Check.INVARIANT, Check.TRANSITION} <= found


def test_an_owner_that_writes_after_its_successor_is_found() -> None:
    """Epochs only grow; and an owner that is ready was elected before."""
    h = played()
    events = events_of(h)
    late = msgspec.structs.replace(h.events[-1], owner_epoch=0, seq=h.events[-1].seq + 1)
    assert (Check.EPOCH, late.seq) in checks(verified(stored([*events, late])))
    position = max(i for i, event in enumerate(events) if isinstance(event, CoordinatorReady))
    ready = events[position]
    assert isinstance(ready, CoordinatorReady)
    other = [*events[:position], msgspec.structs.replace(ready, owner="other:1"), *events[position + 1 :]]
    assert [finding.check for finding in verified(stored(other)).findings] == [Check.OWNER]
    again = next(event for event in events if isinstance(event, CoordinatorElected))
    assert Check.EPOCH in {finding.check for finding in verified(stored([*events, again])).findings}
    older = msgspec.structs.replace(again, owner_epoch=2, format_level=again.format_level - 1)
    assert [finding.check for finding in verified(stored([*events, older])).findings] == [Check.LEVEL]
    unelected = [event for event in events if not (isinstance(event, PartitionEvent) and event.owner_epoch == 1)]
    assert [finding.check for finding in verified(stored(unelected)).findings][:1] == [Check.OWNER]


def test_unreadable_records_are_found_until_they_are_repaired() -> None:
    """A broken value names its group; an unreadable key is skipped after `muster log repair`."""
    h = played()
    records = stored(events_of(h))
    broken = verified(appended(records, broken_value(h.group_id)))
    assert [(each.check, each.group_id) for each in broken.findings] == [(Check.READABLE, h.group_id)]
    unreadable = appended(records, BROKEN_KEY)
    assert [(each.check, each.group_id) for each in verified(unreadable).findings] == [(Check.READABLE, None)]
    repaired = verified(appended(unreadable, Record(BROKEN_KEY.key, None)))
    assert (repaired.findings, repaired.passed_over) == ((), 1)


def test_foreign_records_are_counted_and_take_their_offsets() -> None:
    """They are no findings: readers skip them, and owners rewrite the records that they overwrote."""
    h = played()
    records = stored(events_of(h))
    middle = len(records) // 2
    foreign = StoredRecord(0, 0, 0, encode_key(RecordKey(h.group_id, EntityKind.GROUP, "")), None, is_foreign=True)
    mixed = [*records[:middle], foreign, *records[middle:]]
    result = verified([msgspec.structs.replace(record, offset=offset) for offset, record in enumerate(mixed)])
    assert (result.findings, result.strangers, result.compacted) == ((), 1, ())


def test_a_log_that_ends_within_a_transition() -> None:
    """As in a truncated log."""
    h = Harness()
    h.stable_group(h.static("a"))
    events = events_of(h)
    cut = max(i for i, event in enumerate(events) if isinstance(event, MemberEvent)) + 1
    assert Check.TRANSITION in {finding.check for finding in verified(stored(events[:cut])).findings}


def test_a_night_written_by_hand_holds_together_but_for_the_rules() -> None:
    """The script of the other tests was made without the rules, so only these differ."""
    found = {finding.check for finding in verified(a_night().stored_records(), PARTITIONS).findings}
    assert found <= {Check.RULES, Check.INVARIANT, Check.TRANSITION}


def test_a_decision_that_is_half_unreadable_is_not_a_finding() -> None:
    """The unread record is reported; if the log really ends there, it is a finding."""
    h = Harness()
    h.stable_group(h.static("a"))
    events = events_of(h)
    cut = stored(events[: max(i for i, event in enumerate(events) if isinstance(event, MemberEvent)) + 1])
    damage: list[str] = []
    verification = Verification(1, lambda: damage)
    for record in cut:
        verification.feed(record)
    damage.append("the file is cut off")
    result = verification.result("memory")
    assert (result.findings, result.unread) == ((), ("the file is cut off",))


@pytest.mark.parametrize(
    ("wrong", "broken"),
    [
        (lambda _: {"departures_gathered": True}, "8: departures are gathered, but"),
        (lambda _: {"emptied_by": Cause.MEMBER_LEFT}, "10: members, and a cause"),
        (lambda _: {"leader_id": "nobody"}, "3: the leader nobody is not a member"),
        (lambda group: {"generation_id": group.generation_id - 1}, "6: an assignment for a later generation"),
    ],
)
def test_each_invariant_that_does_not_hold_is_named_by_its_number(
    wrong: Callable[[Group], dict[str, Any]], broken: str
) -> None:
    """The group is Stable otherwise."""
    h = Harness()
    h.stable_group(h.static("a"), h.static("b"))
    group = h.group
    assert group is not None
    assert list(broken_invariants(group)) == []
    changed = group.copy()
    changed.image = msgspec.structs.replace(group.image, **wrong(group))
    assert any(each.startswith(broken) for each in broken_invariants(changed)), list(broken_invariants(changed))


def test_an_instance_is_a_member_or_registered() -> None:
    """Never both."""
    h = Harness()
    h.stable_group(h.static("a"))
    group = h.group
    assert group is not None
    changed = group.copy()
    instance = GroupInstanceId("a")
    changed.registrations[instance] = Registration(group_instance_id=instance, registered_ms=0)
    assert list(broken_invariants(changed)) == ["7: a member's instance id is registered still"]


def test_a_compacted_election_is_not_a_finding() -> None:
    """Its offset is missing, so it is not known who was elected; if its offset exists, it is a finding."""
    events = events_of(played())
    records = stored(events)
    elected = [
        offset
        for offset, event in enumerate(events)
        if isinstance(event, CoordinatorElected | CoordinatorReady) and event.owner_epoch == 1
    ]
    without = [record for record in records if record.offset not in elected]
    assert Check.OWNER not in {finding.check for finding in verified(without).findings}
    closed_up = [msgspec.structs.replace(record, offset=offset) for offset, record in enumerate(without)]
    assert Check.OWNER in {finding.check for finding in verified(closed_up).findings}


def test_a_record_that_cannot_be_read_explains_the_number_that_is_missing() -> None:
    """There is one finding, not two."""
    h = played()
    records = stored(events_of(h))
    position = max(i for i, record in enumerate(records) if record.value is not None and i < len(records) - 2)
    broken = broken_value(h.group_id)
    records[position] = msgspec.structs.replace(records[position], key=broken.key, value=broken.value)
    assert [finding.check for finding in verified(records).findings] == [Check.READABLE]


def test_a_member_under_anothers_id_is_found_among_the_changed_ones() -> None:
    """The finding has the number of the invariant, as if all members were checked."""
    h = Harness()
    h.stable_group(h.static("a"), h.static("b"))
    before = h.live
    event = next(each for each in reversed(h.events) if isinstance(each, MemberAssigned))
    after = before.copy()
    member_id = event.member.member_id
    after.members[member_id] = msgspec.structs.replace(before.members[member_id], member_id=MemberId("another"))
    found = list(invariants_broken_by(before, [event], after))
    assert "1: a member is stored under another's id" in found
    assert "1: a member is stored under another's id" in list(broken_invariants(after))


# ---- a part of a log ----------------------------------------------------------------------------


def left_alone() -> tuple[Harness, Client]:
    """Return a group of two members, one of which has left, and the other."""
    h = Harness()
    a, _ = h.stable_group(h.static("a"), h.static("b"))
    h.sleep(5_000)
    h.leave_instance("b")
    a.join()
    h.sync_all(a)
    return h, a


def forged_twice() -> tuple[list[StoredRecord], list[int], list[int]]:
    """Return a history with two assignments that the rules did not decide, all times, and the seqs of these two."""
    h, _ = left_alone()
    events = events_of(h)
    at = [i for i, event in enumerate(events) if isinstance(event, MemberAssigned)]
    forged: list[int] = []
    for position in (at[0], at[-1]):
        event = events[position]
        assert isinstance(event, MemberAssigned)
        member = msgspec.structs.replace(event.member, client_host="/6.6.6.6")
        events[position] = msgspec.structs.replace(event, member=member)
        forged.append(event.seq)
    times = [event.why.decided_ms for event in events if not isinstance(event, PartitionEvent)]
    return stored(events), times, forged


def test_events_before_a_window_are_folded_and_not_reported() -> None:
    """It counts its own events, says how many earlier ones it depends on, and has only the findings in it."""
    records, times, forged = forged_twice()
    assert [seq for check, seq in checks(verified(records)) if check is Check.RULES] == forged
    since = verified(records, window=Window(since=AtTime(times[-1])))
    within = sum(at_ms == times[-1] for at_ms in times)
    assert [seq for check, seq in checks(since) if check is Check.RULES] == forged[1:]
    assert (since.events, since.folded, since.groups) == (within, len(times) - within, 1)
    assert 0 < since.decided_again < within
    until = verified(records, window=Window(until=AtTime(times[-1] - 1)))
    assert [seq for check, seq in checks(until) if check is Check.RULES] == forged[:1]
    assert (until.events, until.folded) == (len(times) - within, 0)
    between = verified(records, window=Window(since=AtTime(times[-1] - 2), until=AtTime(times[-1] - 1)))
    assert (between.events, between.found, between.groups) == (0, 0, 0)


def test_a_window_that_ends_within_a_history_has_no_unfinished_decision() -> None:
    """Later events are not read."""
    records, times, _ = forged_twice()
    for until_ms in sorted(set(times)):
        found = verified(records, window=Window(until=AtTime(until_ms)))
        assert Check.TRANSITION not in {finding.check for finding in found.findings}


def test_for_selected_groups_the_owners_of_their_partitions_are_checked_too() -> None:
    """A fault of a partition without one of these groups is not reported."""
    records, _, forged = forged_twice()
    records = appended(records, BROKEN_KEY)
    assert [check for check, _ in checks(verified(records, wanted="ord*"))].count(Check.READABLE) == 1
    assert (Check.RULES, forged[0]) in checks(verified(records, wanted="ord*"))
    other = verified(records, wanted="pay*")
    assert (other.found, other.groups, other.events, other.pattern) == (0, 0, 0, "pay*")


# ---- many groups of a partition ------------------------------------------------------------------

SIDE_BY_SIDE: Final = 5


def two_owners() -> list[AnyRecordedEvent]:
    """Return each group's story: it forms, loses a member, and continues under another owner."""
    h, a = left_alone()
    h.takeover()
    h.sleep(5_000)
    h.static("c").join()
    a.join()
    return events_of(h)


def side_by_side() -> list[StoredRecord]:
    """Return groups with the same events, one by one, under two owners; each but the first has a fault of its own.

    Before the second owner, and at the end, there is a record whose group is not known.
    """
    events = two_owners()
    forged = next(i for i, event in enumerate(events) if isinstance(event, MemberAssigned))
    lost = next(i for i, event in enumerate(events) if i > len(events) // 2 and isinstance(event, MemberEvent))
    owners = [i for i, event in enumerate(events) if isinstance(event, CoordinatorElected)]
    records: list[Record] = []
    for position, event in enumerate(events):
        if isinstance(event, PartitionEvent):
            records += [*([BROKEN_KEY] if position == owners[-1] else []), *records_of([event], FORMAT_LEVEL)]
            continue
        for number in range(SIDE_BY_SIDE):
            reported: AnyEvent = msgspec.structs.replace(event, group_id=GroupId(f"orders-{number}"))
            if number == 1 and position == forged and isinstance(reported, MemberAssigned):
                reported = msgspec.structs.replace(
                    reported, member=msgspec.structs.replace(reported.member, client_host="/6.6.6.6")
                )
            if not (number == 2 and position == lost):
                records += records_of([reported], FORMAT_LEVEL)
            if number == 3 and position == lost:
                records.append(broken_value("orders-3"))
    records += [BROKEN_KEY, *records_of([events[0]], FORMAT_LEVEL), broken_value("orders-4")]
    return [StoredRecord(0, offset, 0, record.key, record.value) for offset, record in enumerate(records)]


@pytest.mark.parametrize("told_max", [1, 2, 1_000])
@pytest.mark.parametrize(("groups_max", "members_max"), [(1, 1_000), (2, 1_000), (128, 1)])
def test_groups_that_are_packed_are_checked_as_those_that_are_whole(
    monkeypatch: pytest.MonkeyPatch, groups_max: int, members_max: int, told_max: int
) -> None:
    """The findings and the counts are the same, also for a window."""
    records = side_by_side()
    times = sorted(event.why.decided_ms for event in two_owners() if not isinstance(event, PartitionEvent))
    middle = AtTime(times[len(times) // 2])
    windows = (WHOLE, Window(since=middle), Window(until=middle))
    whole = [verified(records, window=window) for window in windows]
    for name, value in (("GROUPS_MAX", groups_max), ("MEMBERS_MAX", members_max), ("TOLD_MAX", told_max)):
        monkeypatch.setattr(group_checks, name, value)
    assert [verified(records, window=window) for window in windows] == whole
    assert [each.groups for each in whole] == [SIDE_BY_SIDE] * len(windows)
    assert {Check.READABLE, Check.SEQ, Check.RULES, Check.EPOCH} <= {each.check for each in whole[0].findings}


@pytest.mark.parametrize(("groups_max", "members_max", "whole"), [(2, 1_000, 2), (128, 1, 1), (128, 1_000, 5)])
def test_few_groups_are_whole_in_memory(
    monkeypatch: pytest.MonkeyPatch, groups_max: int, members_max: int, whole: int
) -> None:
    """However many groups a partition has: up to the maximum, or fewer if they have many members."""
    monkeypatch.setattr(group_checks, "GROUPS_MAX", groups_max)
    monkeypatch.setattr(group_checks, "MEMBERS_MAX", members_max)
    verification = Verification(1)
    for record in side_by_side():
        verification.feed(record)
    gc.collect()
    assert sum(isinstance(each, GroupCheck) for each in gc.get_objects()) == whole
    assert verification.result("memory").groups == SIDE_BY_SIDE


def test_the_first_findings_are_listed_whenever_they_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some are found late: by the rules at the end of a decision time; for an unrepaired record at the very end."""
    everything = verified(side_by_side())
    assert everything.found == len(everything.findings) > 6
    for listed in (1, 2, 3):
        monkeypatch.setattr("muster.replay.verify.verification.LISTED_MAX", listed)
        first = verified(side_by_side())
        assert (first.findings, first.found) == (everything.findings[:listed], everything.found)


# ---- what a decision costs ----------------------------------------------------------------------


def _forged(event: MemberEvent, how: int) -> MemberEvent:
    member = event.member
    wrong: list[dict[str, Any]] = [
        {"group_instance_id": GroupInstanceId("another")},
        {"group_instance_id": None},
        {"assigned_generation_id": member.assigned_generation_id + 7},
        {"role": MemberRole.CALLED},
        {"member_id": MemberId("somebody")},
    ]
    return msgspec.structs.replace(event, member=msgspec.structs.replace(member, **wrong[how]))


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1), st.booleans(), st.integers(0, 4), st.integers(0, 10**6))
def test_looking_at_the_changed_members_finds_what_looking_at_all_of_them_does(
    seed: int, planned: bool, how: int, which: int
) -> None:
    """Random histories with one forged event, up to the first decision after which an invariant fails."""
    play = (MembershipPlay if planned else Play)(random.Random(seed))
    for _ in range(30):
        play.step()
    items = list(history_of(play.harness).items)
    at = [i for i, item in enumerate(items) if isinstance(item, Happened) and isinstance(item.event, MemberEvent)]
    if at:
        position = at[which % len(at)]
        item = items[position]
        assert isinstance(item, Happened)
        assert isinstance(item.event, MemberEvent)
        items[position] = msgspec.structs.replace(item, event=_forged(item.event, how))
    is_well = False
    for step in Transitions(play.harness.group_id).steps(items):
        if not isinstance(step, Transition) or step.after.state is GroupState.DEAD:
            is_well = False
            continue
        broken = list(broken_invariants(step.after))
        if is_well and not step.begins_life:
            assert bool(broken) == any(invariants_broken_by(step.before, step.parts, step.after)), broken
        is_well = not broken


def work_of(size: int) -> float:
    """Return the work that one replaced process causes in `verify`, in a group of this many static members."""
    h, ends = Unchecked(), []
    stable(*(h.static(f"i{number}") for number in range(size)))
    for number in range(12):
        h.sleep(100)
        h.static(f"i{number}").enter()
        ends.append(len(stored(list(h.events))))
    records = stored(list(h.events))
    verification, work = Verification(1), Work()
    for record in records[: ends[1]]:  # the first one includes the formation of the group
        verification.feed(record)
    with work.counted():
        for record in records[ends[1] :]:
            verification.feed(record)
    result = verification.result("memory")
    assert (result.found, result.decided_again) == (0, len(h.events))
    return work.total / 10


def test_a_decision_costs_the_same_in_a_group_of_any_size() -> None:
    """Neither the rules' sessions nor the invariants of all members are checked for each decision."""
    work_of(10)  # warm up caches
    assert work_of(600) < 2 * work_of(100)
