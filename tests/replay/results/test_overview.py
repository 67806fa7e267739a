"""The table of groups: their last incidents by the width of the terminal, and missing parts of histories."""

import gc
from collections.abc import Callable

import msgspec
import pytest

from muster.events.causes import Cause
from muster.events.records import StoredRecord
from muster.replay.form import Format
from muster.replay.history.skim import Skim
from muster.replay.history.window import AtTime
from muster.replay.rebalances.rebalance import Outcome
from muster.replay.results import group_tail
from muster.replay.results.group_tail import TAIL_MAX
from muster.replay.results.groups import Groups, Overview
from muster.replay.results.states import StatesFold
from tests.replay.histories import Script
from tests.replay.stories import a_night
from tests.replay.told import printed, rebalances_of
from tests.replay.written import CountedValue, broken_value, counted


def overview(records: list[StoredRecord]) -> Groups:
    """Return the groups of a log with these records."""
    groups = Overview()
    for record in records:
        groups.take([record])
    return groups.result("memory")


def test_the_last_incident_is_shown_in_full_if_it_fits() -> None:
    """Otherwise it shows only the kind."""
    groups = overview(a_night().stored_records())
    (line,) = groups.groups
    assert line.last_incident is not None
    text = f"{line.last_incident.kind}: {line.last_incident.headline[:20]}"
    assert text in printed(groups, width=300)
    narrow = printed(groups, width=80)
    assert line.last_incident.kind in narrow
    assert line.last_incident.headline[:20] not in narrow
    assert "not over" not in narrow


def test_an_unfinished_incident_is_shown_as_running() -> None:
    """The join phase of its rebalance has not ended."""
    script = Script().created()
    script.start(script.joined(script.member("a")))
    assert "start, not over" in printed(overview(script.stored_records()), width=80)


def test_a_group_is_as_old_as_the_beginning_of_its_last_incident() -> None:
    """Not of its last rebalance: it is shown, and sorted, by the time when the trouble began."""
    script = Script().created()
    script.start(script.joined(script.member("a"))).complete().stabilize({"a": {"orders": [0]}})
    script.wait(3_600_000).start(script.joined(script.member("b"))).complete().wait(2_000)
    script.start(script.joined(script.member("c"))).complete().stabilize({"a": {"orders": [0]}})
    (line,) = overview(script.stored_records()).groups
    assert line.last_incident is not None
    assert line.last_incident.started_at != line.last_rebalance_at
    assert line.last_at == line.last_incident.started_at


def test_a_history_without_its_beginning_had_at_least_this_many_rebalances() -> None:
    """In the table and in Markdown; the other groups have exact numbers."""
    records = a_night().stored_records()
    whole, cut = overview(records), overview(records[12:])
    assert "+ |" not in printed(whole, Format.MD)
    (line,) = cut.groups
    assert line.missing_events
    assert f"| {line.rebalances}+ |" in printed(cut, Format.MD)
    assert f" {line.rebalances}+ " in printed(cut, width=140)


def test_an_unreadable_record_is_not_a_missing_event() -> None:
    """It explains the missing seq, wherever it is."""
    records = a_night().stored_records()
    broken = broken_value("orders").value
    for at, record in enumerate(records):
        (line,) = overview([*records[:at], msgspec.structs.replace(record, value=broken), *records[at + 1 :]]).groups
        assert line.missing_events == 0


def busy(script: Script, name: str, transitions: int) -> None:
    """Let a member change all the time, without a rebalance."""
    for _ in range(transitions):
        script.wait(1_000).advanced(script.rejoined(script.of(name)))


def test_of_a_group_that_is_never_quiet_a_bounded_tail_is_kept() -> None:
    """Its last rebalance is shown nevertheless, before and after later records have been dropped."""
    script = Script().created()
    script.start(script.joined(script.member("a"))).complete(cause=Cause.INITIAL_DELAY_ELAPSED).stabilize({})
    busy(script, "a", TAIL_MAX)
    script.wait(1_000).start(script.joined(script.member("b"))).complete(script.rejoined(script.of("a"))).stabilize({})
    at = rebalances_of(script.history())[-1].started_at
    for turn in range(3):
        busy(script, "b", TAIL_MAX // (2 - turn % 2))
        groups = Overview()
        for record in script.stored_records():
            groups.take([counted(record)])
        assert CountedValue.kept < 2 * TAIL_MAX
        (line,) = groups.result("memory").groups
        assert (line.rebalances, line.last_rebalance_at, line.last_outcome) == (2, at, Outcome.STABLE)
        assert "'b'" in (line.last_text or "")


def test_while_a_rebalance_is_running_its_beginning_is_kept_however_long_it_is() -> None:
    """Its members and its trigger are shown when it ends."""
    script = Script().created()
    script.start(script.joined(script.member("a"))).complete(cause=Cause.INITIAL_DELAY_ELAPSED).stabilize({})
    busy(script, "a", TAIL_MAX)
    script.wait(1_000).start(script.joined(script.member("b")))
    busy(script, "a", TAIL_MAX)
    script.complete().stabilize({})
    (line,) = overview(script.stored_records()).groups
    last = rebalances_of(script.history())[-1]
    assert (line.last_rebalance_at, line.last_text) == (last.started_at, last.trigger.text)
    assert line.last_outcome is Outcome.STABLE


def test_a_tail_is_bounded_in_bytes_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few records may be large."""
    monkeypatch.setattr(group_tail, "TAIL_BYTES", 20_000)
    script = Script().created()
    script.start(script.joined(script.member("a"))).complete(cause=Cause.INITIAL_DELAY_ELAPSED).stabilize({})
    busy(script, "a", TAIL_MAX // 4)
    records, groups = script.stored_records(), Overview()
    for record in records:
        groups.take([counted(record)])
    assert CountedValue.kept < len(records) // 4
    (line,) = groups.result("memory").groups
    assert (line.rebalances, line.last_outcome) == (1, Outcome.STABLE)


@pytest.mark.parametrize("until", range(1, len(a_night().transitions) + 1))
def test_if_there_are_too_many_groups_the_last_rebalance_is_found_in_few_records(
    monkeypatch: pytest.MonkeyPatch, until: int
) -> None:
    """Its start, cause and outcome are shown as if all records were kept, at each time of a night."""
    night = a_night()
    records = night.stored_records()[: sum(map(len, night.stored_transitions()[:until]))]
    whole = overview(records).groups
    monkeypatch.setattr(group_tail, "TAILS_MAX", 1)
    few = overview(records).groups
    reported, expected = (
        [msgspec.structs.replace(line, last_incident=None) for line in lines] for lines in (few, whole)
    )
    assert reported == expected


@pytest.mark.parametrize(
    ("limit", "at_most", "in_records"), [("TAILS_MAX", 1, 1), ("TAILS_MAX", 50, 50), ("TAILS_BYTES", 1, 1)]
)
def test_events_within_a_rebalance_are_not_kept_then(
    monkeypatch: pytest.MonkeyPatch, limit: str, at_most: int, in_records: int
) -> None:
    """The ends of its transitions are; the limit is for all kept records, not only for the latest."""
    script = Script().created()
    script.start(script.joined(script.member("a"))).complete(cause=Cause.INITIAL_DELAY_ELAPSED).stabilize({})
    script.wait(1_000).start(script.joined(script.member("b")))
    busy(script, "a", 200)
    script.complete().stabilize({})
    monkeypatch.setattr(group_tail, limit, at_most)
    groups = Overview()
    for record in script.stored_records():
        groups.take([counted(record)])
    assert 200 < CountedValue.kept < 250 + in_records
    (line,) = groups.result("memory").groups
    assert (line.rebalances, line.last_outcome, line.members) == (2, Outcome.STABLE, 2)


@pytest.mark.parametrize("make", [Overview, lambda: StatesFold("memory", AtTime(2**50))])
def test_nothing_is_kept_of_the_groups_of_a_partition_that_was_read(make: Callable[[], Overview | StatesFold]) -> None:
    """Even if the garbage collector has not run, which it rarely does in a command."""

    def there() -> int:
        return sum(isinstance(each, Skim) for each in gc.get_objects())

    groups, before = make(), there()
    gc.disable()
    try:
        for partition in range(3):
            for name in range(5):
                records = Script(f"g{partition}-{name}").created().stored_records()
                groups.take([msgspec.structs.replace(each, partition=partition) for each in records])
            assert there() - before == 5
        reported = groups.result("memory").groups if isinstance(groups, Overview) else tuple(groups.states())
        assert len(reported) == 15
        assert there() == before
    finally:
        gc.enable()
