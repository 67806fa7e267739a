"""The table of groups: their last incidents by the width of the terminal, and what of a history is missing."""

from muster.events.records import StoredRecord
from muster.replay.form import Format
from muster.replay.results.groups import Groups, Overview
from tests.replay.histories import Script
from tests.replay.stories import a_night
from tests.replay.told import printed


def overview(records: list[StoredRecord]) -> Groups:
    """The groups of a log with these records."""
    groups = Overview()
    for record in records:
        groups.take(record)
    return groups.result("memory")


def test_the_last_incident_is_whole_where_there_is_room() -> None:
    """Its kind alone where there is not."""
    groups = overview(a_night().stored_records())
    (line,) = groups.groups
    assert line.last_incident is not None
    told = f"{line.last_incident.kind}: {line.last_incident.headline[:20]}"
    assert told in printed(groups, width=300)
    narrow = printed(groups, width=80)
    assert line.last_incident.kind in narrow
    assert line.last_incident.headline[:20] not in narrow
    assert "not over" not in narrow


def test_an_incident_that_is_not_over_is_said_to_be_going_on() -> None:
    """The join phase of its rebalance has not ended."""
    script = Script().created()
    script.start(script.joined(script.member("a")))
    assert "start, not over" in printed(overview(script.stored_records()), width=80)


def test_of_a_history_that_has_lost_its_beginning_there_were_so_many_rebalances_at_least() -> None:
    """In the table and in Markdown; the others are counted as they are."""
    records = a_night().stored_records()
    whole, cut = overview(records), overview(records[12:])
    assert "+ |" not in printed(whole, Format.MD)
    (line,) = cut.groups
    assert line.missing_events
    assert f"| {line.rebalances}+ |" in printed(cut, Format.MD)
    assert f" {line.rebalances}+ " in printed(cut, width=140)
