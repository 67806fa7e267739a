"""Parsing and printing times: ages, zones, hours that occur twice or not at all."""

import typing
from datetime import UTC, datetime, timedelta, tzinfo
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.replay.history.window import AtSeq
from muster.replay.incidents.evidence.naming import span
from muster.replay.incidents.grade import Grade
from muster.replay.incidents.incident import Incident, Statement
from muster.replay.rebalances.rebalance import Outcome
from muster.replay.results.groups import GroupLine, Groups, Owner
from muster.replay.results.state import StateAt
from muster.replay.text.times import (
    Instant,
    NoSuchTime,
    Sentence,
    in_zone,
    instant,
    moment,
    read_time,
    sentence_in_zone,
    setting,
    wall_ms_of,
    zone_of,
)
from muster.replay.text.zones import UnknownZone, local_zone, told_in, zone_named
from tests.replay.stories import a_night
from tests.replay.whole import incidents, state_at

BERLIN = ZoneInfo("Europe/Berlin")
ZONES = st.sampled_from(
    ["UTC", "Europe/Berlin", "America/St_Johns", "Asia/Kathmandu", "Pacific/Apia", "Australia/Lord_Howe"]
)
NOW_MS = 1_795_230_000_000
"""2026-11-21T03:00:00Z."""


def read(text: str, zone: tzinfo = UTC) -> int | None:
    return read_time(text, now_ms=NOW_MS, zone=zone)


def test_ages_count_back_from_now() -> None:
    """In one unit or several; `now` may precede them, or be alone."""
    ages = {"30m": 1_800_000, "2h": 7_200_000, "7d": 604_800_000, "1w": 604_800_000, "1h30m": 5_400_000}
    ages |= {"now-10m": 600_000, "now": 0, "90s": 90_000, "250ms": 250}
    ages |= {"1.5h": 5_400_000, "now-1.5h": 5_400_000, "2 h": 7_200_000, "2H": 7_200_000}  # as durations elsewhere
    assert {age: NOW_MS - (read(age) or 0) for age in ages} == ages
    for nonsense in ("2", "h", "now-", "now-2", "-2h", "now+2h", "2y", "99999999999h", ""):
        assert read(nonsense) is None


def test_a_time_without_a_zone_is_in_the_given_zone() -> None:
    """Unless it has a zone of its own."""
    assert read("2026-11-21T04:00:00", BERLIN) == NOW_MS
    assert read("2026-11-21T03:00:00Z", BERLIN) == NOW_MS
    assert read("04:00", BERLIN) == NOW_MS
    assert read("04:00:01", BERLIN) == NOW_MS + 1_000 - 86_400_000


@pytest.mark.parametrize(
    ("text", "behind_ms"),
    [
        ("03:00:00Z", 0),
        ("02:59:59.750Z", 250),
        ("03:00:01Z", 86_399_000),
        ("04:00+01:00", 0),
        ("04:00 UTC+01:00", 0),
        ("22:00-05:00", 0),
        ("22:00:01-0500", 86_399_000),
        ("3:00 UTC", 0),
    ],
)
@pytest.mark.parametrize("zone", [UTC, BERLIN])
def test_a_time_of_day_may_have_its_own_zone(text: str, behind_ms: int, zone: tzinfo) -> None:
    """It is the last such time until now, on the last day that has it; the zone of other times does not matter."""
    assert read(text, zone) == NOW_MS - behind_ms


def test_a_printed_time_is_parsed() -> None:
    """A time copied from an output has its zone after a blank."""
    assert read("2026-11-21 02:59:58.250 UTC", BERLIN) == NOW_MS - 1_750
    assert read("2026-11-21 03:59:58.250 UTC+01:00") == NOW_MS - 1_750
    for nonsense in ("UTC", "03:00 UTC+1", "03:00+99:00", "25:00Z", "03:00ZZ", "2h UTC"):
        assert read(nonsense) is None


def test_a_zone_equal_to_utc_is_shown_as_utc() -> None:
    """A machine in UTC calls its zone 'Etc/UTC'; in London it is winter."""
    for name in ("Etc/UTC", "Europe/London"):
        assert zone_of(in_zone(instant(NOW_MS), ZoneInfo(name))) == "UTC"


@pytest.mark.parametrize(
    ("time", "readings"),
    [
        ("2026-10-25T02:30:00", ["occurs twice", "2026-10-25T02:30:00+02:00", "2026-10-25T02:30:00+01:00"]),
        ("2026-03-29T02:30:00", ["does not exist", "2026-03-29T01:30:00+01:00", "2026-03-29T03:30:00+02:00"]),
    ],
)
def test_a_repeated_or_skipped_hour_is_refused(time: str, readings: list[str]) -> None:
    """With both readings, which are times of that zone; with an offset it is a normal time."""
    with pytest.raises(NoSuchTime) as refused:
        read(time, BERLIN)
    assert "Europe/Berlin" in str(refused.value)
    assert all(reading in str(refused.value) for reading in readings)
    assert all(in_zone(instant(read(each, BERLIN) or 0), BERLIN).startswith(each[:19]) for each in readings[1:])
    assert read(f"{time}+01:00", BERLIN) is not None


@given(st.integers(0, 4_102_444_800_000), ZONES)
def test_times_printed_in_a_zone_are_parsed_back(wall_ms: int, name: str) -> None:
    """Across daylight saving time, half hours and the day that Samoa skipped."""
    reported = in_zone(instant(wall_ms), zone_named(name))
    assert wall_ms_of(reported) == wall_ms
    assert read(reported) == wall_ms
    assert zone_of(reported).startswith("UTC")


@given(st.datetimes(datetime(1990, 1, 1), datetime(2030, 1, 1)), ZONES)  # noqa: DTZ001 -- without zone on purpose
def test_every_local_time_has_one_reading_or_is_refused(moment: datetime, name: str) -> None:
    """There is never a silent choice."""
    zone = zone_named(name)
    moment = moment.replace(microsecond=0)
    first, second = (moment.replace(tzinfo=zone, fold=fold).astimezone(UTC) for fold in (0, 1))
    if first == second:
        assert read(moment.isoformat(), zone) == (first - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)
    else:
        with pytest.raises(NoSuchTime):
            read(moment.isoformat(), zone)


def test_the_zone_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """TZ has it; an invalid zone is UTC."""
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    assert str(local_zone()) == "Asia/Tokyo"
    monkeypatch.setenv("TZ", "nonsense/zone")
    assert local_zone() is UTC
    monkeypatch.setenv("TZ", "local")
    assert local_zone() is UTC
    monkeypatch.delenv("TZ")
    assert local_zone() is not None


@pytest.mark.parametrize("name", ["Europe/Nowhere", "", "../etc/passwd", "Europe", "a\0b"])
def test_invalid_zones_are_refused(name: str) -> None:
    """However the database treats them."""
    with pytest.raises(UnknownZone):
        zone_named(name)


def test_results_are_shown_in_a_zone() -> None:
    """Every instant, at any depth, and nothing else: a client may have any name."""
    history = a_night().history()
    incident = next(each for each in incidents(history) if each.rebalances)
    found = told_in(incident, BERLIN)
    rebalance = incident.rebalances[0]
    assert found.rebalances[0].started_at == in_zone(rebalance.started_at, BERLIN)
    assert found.rebalances[0].trigger.at.endswith("+01:00")
    assert found.rebalances[0].members_before == rebalance.members_before
    assert (found.chain[0].at or "").endswith("+01:00")
    state: StateAt | None = state_at(history, AtSeq(12))
    assert state is not None
    assert told_in(state, BERLIN).members[0].joined_at.endswith("+01:00")
    assert told_in(state, UTC) is state
    line = GroupLine(
        group_id="2026-11-21T02:14:07.250Z",  # type: ignore[arg-type]
        partition=0,
        state=None,
        generation_id=None,
        members=0,
        static_members=0,
        rebalances=1,
        last_rebalance_at=Instant("2026-11-21T02:14:07.250Z"),
        last_cause=None,
        last_text=None,
        last_outcome=Outcome.STABLE,
        last_event_at=None,
        events=1,
        missing_events=0,
        unknown_events=0,
        quarantined=(),
        coordinator="muster",
        owner=Owner.MUSTER,
    )
    (told_line,) = told_in(Groups(log="x", groups=(line,), unreadable_keys=()), BERLIN).groups
    assert told_line.group_id == line.group_id
    assert told_line.last_rebalance_at == "2026-11-21T03:14:07.250+01:00"
    assert told_line.last_event_at is None


@pytest.mark.parametrize(
    ("sentence", "told"),
    [
        ("it was away until 2026-11-23 07:01:14 UTC; then", "it was away until 2026-11-23 08:01:14 UTC+01:00; then"),
        ("from 2026-11-23 07:01:14 to 07:01:36 UTC", "from 2026-11-23 08:01:14 to 08:01:36 UTC+01:00"),
        (
            "from 2026-11-23 22:59:00 to 23:01:00 UTC",
            "from 2026-11-23 23:59:00 to 2026-11-24 00:01:00 UTC+01:00",
        ),
        (
            "from 2026-11-23 23:59:00 to 2026-11-24 00:01:00 UTC",
            "from 2026-11-24 00:59:00 to 01:01:00 UTC+01:00",
        ),
        (
            "from 2026-10-25 00:59:00 to 01:01:00 UTC",
            "from 2026-10-25 02:59:00 UTC+02:00 to 02:01:00 UTC+01:00",
        ),
    ],
)
def test_the_times_of_a_sentence_are_shown_in_a_zone(sentence: str, told: str) -> None:
    """With its day, and its offset if the clocks change between two times; in UTC it stays as it is."""
    assert sentence_in_zone(sentence, BERLIN) == told
    assert sentence_in_zone(sentence, UTC) == sentence


@pytest.mark.parametrize(
    "quoted", ["'2026-11-23 07:01:14 UTC' left", 'the client says: "since 2026-11-23 07:01:14 UTC"']
)
def test_quotes_in_a_sentence_are_a_clients(quoted: str) -> None:
    """It is left unchanged."""
    assert sentence_in_zone(quoted, BERLIN) == quoted


def test_the_sentences_of_an_incident_are_shown_in_a_zone_and_its_names_unchanged() -> None:
    """The headline, and each statement."""
    statement = Statement(text="at 2026-11-23 07:01:14 UTC", grade=Grade.RECORDED)
    found = told_in(statement, BERLIN)
    assert found == Statement(text="at 2026-11-23 08:01:14 UTC+01:00", grade=Grade.RECORDED)
    assert typing.get_type_hints(Incident, include_extras=True)["headline"] == Sentence


@given(st.integers(min_value=NOW_MS, max_value=4_000_000_000_000), st.integers(min_value=0, max_value=10**9))
def test_the_times_that_a_sentence_has_are_found(from_ms: int, for_ms: int) -> None:
    """As `naming` writes them."""
    sentence = f"{moment(from_ms)}, {span(from_ms, from_ms + for_ms)}"
    assert " UTC+05:45" in (reported := sentence_in_zone(sentence, ZoneInfo("Asia/Kathmandu")))
    assert "UTC," not in reported
    assert not reported.endswith("UTC")


@pytest.mark.parametrize(
    ("ms", "shown"),
    [
        (250, "250 ms"),
        (1_500, "1.5 s"),
        (45_000, "45 s"),
        (300_000, "5 min"),
        (100_500_250, "100500.25 s"),
        (999_999_999, "999999.999 s"),
        (2**31 - 1, "2147483.647 s"),
    ],
)
def test_a_setting_has_all_its_digits(ms: int, shown: str) -> None:
    """A rebalance timeout of Integer.MAX_VALUE, as Kafka Streams has sent it, is not 2.14748e+06 s."""
    assert setting(ms) == shown
