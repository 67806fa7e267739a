"""A history that is read from a checkpoint on gives the same results as one that is read from its beginning."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.events.avro.codec import decode
from muster.events.causes import Cause
from muster.events.events import PartitionEvent
from muster.events.ids import GroupId
from muster.events.records import StoredRecord
from muster.replay.history.items import Item
from muster.replay.history.transitions import Transitions
from muster.replay.history.window import AtSeq, AtTime, Window
from muster.replay.incidents.incident import Incident
from muster.replay.incidents.windows import QUIET_MS
from muster.replay.logs.reading import Reading
from muster.replay.logs.sources import find_start, from_the_beginning, items
from muster.replay.rebalances.timeline import Timeline
from muster.replay.report.fold import ReportFold
from muster.replay.results.groups import Overview, read_overview
from muster.replay.results.states import StatesFold
from muster.replay.results.story import StoryLines
from muster.replay.results.why import NewestIncidents, WhyFold
from tests.judge.case import make_case
from tests.judge.scenarios import SCENARIOS
from tests.replay import memberships
from tests.replay.histories import Script
from tests.replay.stories import a_night
from tests.replay.told import rebalances_of
from tests.replay.whole import History, incidents, read_histories, state_at
from tests.replay.written import broken_value, memory_log, script, stored_items

ORDERS = GroupId("orders")
HOUR_MS = 3_600_000


def twice() -> Script:
    """Two incarnations of one group id."""
    story = script("orders").coordinator("a:1").created()
    story.wait(50).start(story.joined(story.member("billing-1"))).wait(20).deleted().wait(70_000).made_anew().created()
    return story.wait(900_000).start(story.joined(story.member("billing-2")))


def stories() -> dict[str, list[StoredRecord]]:
    """Histories by what they contain, each in its group's partition."""
    reported = {"night": a_night().stored_records(), "twice": twice().stored_records()}
    first = script("orders").created()  # with its partition's first record
    reported["first"] = first.start(first.joined(first.member("billing-1"))).complete().stabilize({}).stored_records()
    reported["compacted"] = [record for record in reported["night"] if not 3 <= record.offset <= 16]
    broken = list(reported["night"])
    value = broken_value("orders")
    broken[20] = msgspec.structs.replace(broken[20], key=value.key, value=value.value)
    reported["broken"] = broken
    for play in (memberships.registration, memberships.retirement_late, memberships.standby, memberships.duel):
        partition = script("orders").partition
        reported[play.__name__] = [
            msgspec.structs.replace(record, partition=partition, offset=offset)
            for offset, record in enumerate(play("orders").records)
        ]
    return reported


STORIES = stories()


async def opened(story: str) -> tuple[Reading, list[Item]]:
    log = await memory_log(STORIES[story])
    whole = (await read_histories(log))[ORDERS]
    return Reading(log=log), list(whole.items)


@pytest.mark.parametrize("story", sorted(STORIES))
async def test_the_lines_from_any_number_on_are_those_of_the_whole_history(story: str) -> None:
    """This includes texts, generations and states."""
    reading, whole = await opened(story)
    lines = StoryLines()
    reported = [lines.feed(item) for item in whole]
    last_life = max(line.incarnation or 0 for line in reported)
    for seq in {line.seq for line in reported if line.seq is not None and line.incarnation == last_life}:
        start = await find_start(reading, ORDERS, Window(since=AtSeq(seq)))
        assert start.is_reached
        fold = StoryLines(start.checkpoint.group(ORDERS))
        again = [fold.feed(item) async for item in items(reading, start)]
        own = [line for line in again if line.seq is not None and (line.seq >= seq or line.incarnation != last_life)]
        assert own == [line for line in reported if line.seq is not None][-len(own) :]
        assert own[0].seq is not None
        assert own[0].seq <= seq


@pytest.mark.parametrize("story", sorted(STORIES))
async def test_the_last_rebalance_is_found_without_earlier_history(story: str) -> None:
    """It has the same trigger, members and moves as in the fold over the whole history."""
    reading, _ = await opened(story)
    expected = rebalances_of((await read_histories(reading.log))[ORDERS])
    start = await find_start(reading, ORDERS, None)
    read = [item async for item in items(reading, start)]
    timeline, transitions = (
        Timeline(start.checkpoint.group(ORDERS)),
        Transitions(ORDERS, start.checkpoint.group(ORDERS)),
    )
    ended = [each for step in transitions.steps(read) if (each := timeline.feed(step)) is not None]
    last = timeline.running() or ended[-1]
    notes = msgspec.structs.replace(expected[-1], notes=(), meanwhile=(), avoided=())
    assert msgspec.structs.replace(last, notes=(), meanwhile=(), avoided=()) == notes


@pytest.mark.parametrize("story", sorted(STORIES))
async def test_the_last_incident_is_found_without_earlier_history(story: str) -> None:
    """It is read from a quiet time on, with everything that happened before its rebalances."""
    await _finds_the_last_incident(*await opened(story))


@pytest.mark.parametrize("seed", range(12))
async def test_the_last_incident_of_any_fleet_is_found_without_earlier_history(seed: int) -> None:
    """This includes outages of the coordinator, but not the loss of the history's beginning long before it."""
    case = make_case(seed if SCENARIOS[make_case(seed).scenario].cuts is None else seed + 12)
    records = stored_items(case.history.items, script("orders").partition)
    reading = Reading(log=await memory_log(records))
    history = (await read_histories(reading.log))[ORDERS]
    await _finds_the_last_incident(reading, list(history.items))
    overview = Overview()
    await read_overview(reading, overview)
    (line,) = overview.result("memory").groups
    assert line.last_incident is not None
    assert line.last_incident.headline == by_age(incidents(history))[-1].headline


def after_quiet() -> list[StoredRecord]:
    """Two static restarts hours apart and, hours later, a process that is restarted: two rebalances."""
    story = script("orders").created()
    story.start(story.joined(story.member("a"))).complete().stabilize({"a": {"orders": [0]}}).wait(HOUR_MS)
    story.start(story.joined(story.member("b"))).advanced(story.rejoined(story.of("a")))
    leaver = story.member("c", static=False)
    story.advanced(story.joined(leaver)).complete().stabilize({"a": {"orders": [0]}})
    for name in ("a", "b"):
        story.wait(HOUR_MS).advanced(story.replaced(name, Cause.STATIC_RESTART_ABSORBED, host="/10.0.0.9"))
    story.wait(HOUR_MS).start(story.removed(leaver, Cause.MEMBER_LEFT)).wait(500)
    story.complete(story.rejoined(story.of("a")), story.rejoined(story.of("b"))).stabilize({"a": {"orders": [0]}})
    story.wait(5_000).start(story.joined(story.member("c", static=False))).wait(500)
    story.complete(story.rejoined(story.of("a")), story.rejoined(story.of("b"))).stabilize({"b": {"orders": [0]}})
    return story.stored_records()


@pytest.mark.parametrize(
    ("gone", "is_noted"),
    [
        ([], False),
        (["StaticMemberReplaced", "GroupAdvanced"], True),
        (["StaticMemberReplaced"], True),
        (["GroupCreated"], False),  # the next rebalance has a note about it
        (["MemberJoined", "GroupAdvanced"], False),  # the rebalance with the gap has a note about it
        (["MemberJoined", "RebalanceStarted", "MemberRejoined"], True),  # the assignment after it is in the log
    ],
)
@pytest.mark.parametrize("is_broken", [False, True])
async def test_gaps_since_the_last_rebalance_are_noted_after_any_quiet_time(
    gone: list[str], is_noted: bool, is_broken: bool
) -> None:
    """Reading starts at the last quiet time; earlier missing parts are noted if they are after the last rebalance."""
    records = after_quiet()
    types = [type(decode(each.value)).__name__ if each.value else "" for each in records]
    first = next(at for at in range(len(types)) if types[at : at + len(gone)] == gone)
    if is_broken:
        value = broken_value("orders")
        for at in range(first, first + len(gone)):
            records[at] = msgspec.structs.replace(records[at], key=value.key, value=value.value)
    else:
        del records[first : first + len(gone)]
    reading = Reading(log=await memory_log(records))
    history = (await read_histories(reading.log))[ORDERS]
    (*_, restarted) = incidents(history)
    assert [each.kind for each in incidents(history)][-1] == "restart"
    assert len(restarted.rebalances) == 2
    assert bool(restarted.notes) == is_noted
    await _finds_the_last_incident(reading, list(history.items))
    for since_ms in (records[-1].timestamp_ms - HOUR_MS // 2, records[-1].timestamp_ms):
        window = Window(since=AtTime(since_ms))
        start = await find_start(reading, ORDERS, window, quiet_ms=QUIET_MS)
        assert start.checkpoint.seq > 0
        page = ReportFold(
            ORDERS, start.checkpoint.group(ORDERS), at_ms=start.checkpoint.at_ms, missing=start.checkpoint.missing
        )
        fold = WhyFold(ORDERS, start.checkpoint, window=window)
        reported: list[Incident] = []
        async for item in items(reading, start):
            page.feed(item)
            reported += fold.feed(item)
        page.end()
        assert [*reported, *fold.end()][-1].notes == restarted.notes
        notes = [note for each in page.page("memory", made_ms=0).stories for note in each.notes]
        assert bool(notes) == bool(restarted.notes)


def by_age(reported: list[Incident]) -> list[Incident]:
    """Sort them by their latest rebalance, the latest last."""
    return sorted(reported, key=lambda each: each.newest_ms)


async def _finds_the_last_incident(reading: Reading, whole: list[Item]) -> None:
    expected = by_age(incidents(History(group_id=ORDERS, log="memory", items=tuple(whole))))
    start = await find_start(reading, ORDERS, None, quiet_ms=QUIET_MS, rebalances=2)
    fold, newest = WhyFold(ORDERS, start.checkpoint), NewestIncidents(1)
    async for item in items(reading, start):
        for incident in fold.feed(item):
            newest.take(incident)
    for incident in fold.end():
        newest.take(incident)
    assert list(newest.end()) == expected[-1:]


@pytest.mark.parametrize("story", sorted(STORIES))
async def test_a_group_in_one_line_matches_the_whole_history(story: str) -> None:
    """Counts, the last rebalance as text, and the state are the same."""
    reading, _ = await opened(story)
    history = (await read_histories(reading.log))[ORDERS]
    overview = Overview()
    await read_overview(reading, overview)
    (line,) = overview.result("memory").groups
    last = rebalances_of(history)[-1]
    assert (line.rebalances, line.last_rebalance_at, line.last_text, line.last_outcome) == (
        len(rebalances_of(history)),
        last.started_at,
        last.trigger.text,
        last.outcome,
    )
    reported = by_age(incidents(history))[-1]
    assert line.last_incident is not None
    assert (line.last_incident.started_at, line.last_incident.headline) == (reported.started_at, reported.headline)
    assert line.events == sum(1 for _ in history.events)
    state = state_at(history, AtTime(2**50))
    assert state is not None
    assert (line.state, line.generation_id, line.members) == (state.state, state.generation_id, len(state.members))
    states = StatesFold(history.log, AtTime(2**50))
    async for chunk in reading.chunks(range(reading.log.partitions)):
        states.take(chunk)
    (again,) = states.states()
    assert msgspec.structs.replace(again, notes=state.notes) == state


@given(st.integers(-1_000, 10_000_000))
def test_nothing_is_counted_outside_of_a_window(after_ms: int) -> None:
    """A group without an event in the window has no line."""
    overview = Overview(since_ms=STORIES["night"][0].timestamp_ms + after_ms)
    for record in STORIES["night"]:
        overview.take([record])
    decoded = [decode(record.value) for record in STORIES["night"] if record.value is not None]
    events = [each for each in decoded if not isinstance(each, PartitionEvent)]
    wanted = [e for e in events if e.why.decided_ms >= STORIES["night"][0].timestamp_ms + after_ms]
    lines = overview.result("memory").groups
    assert [line.events for line in lines] == ([len(wanted)] if wanted else [])


async def test_a_checkpoint_follows_the_requested_quiet_time() -> None:
    """So related events are read together."""
    reading, whole = await opened("twice")
    last_seq = max(item.event.seq for item in whole if hasattr(item, "event") and hasattr(item.event, "seq"))
    near = await find_start(reading, ORDERS, Window(since=AtSeq(last_seq)))
    far = await find_start(reading, ORDERS, Window(since=AtSeq(last_seq)), quiet_ms=1_000_000)
    assert far.checkpoint.offset < near.checkpoint.offset
    assert far.checkpoint == from_the_beginning(ORDERS).checkpoint


@pytest.mark.parametrize(("story", "last_seq"), [("night", 44), ("first", 6)])
async def test_an_unknown_number_is_not_reached(story: str, last_seq: int) -> None:
    """The valid numbers are known then."""
    reading, _ = await opened(story)
    start = await find_start(reading, ORDERS, Window(since=AtSeq(1_000)))
    assert not start.is_reached
    assert start.first is not None
    assert start.last is not None
    assert (start.first.seq, start.last.seq) == (1, last_seq)


async def test_a_number_of_the_last_life_is_not_looked_for_in_an_earlier_one() -> None:
    """Both incarnations have this number; reading starts after the end of the first one."""
    reading, whole = await opened("twice")
    start = await find_start(reading, ORDERS, Window(since=AtSeq(1)))
    lives = {item.incarnation for item in map(StoryLines().feed, whole) if item.incarnation is not None}
    reported = {line.incarnation for line in [StoryLines().feed(item) async for item in items(reading, start)]}
    assert reported - {None} == {max(lives)}
