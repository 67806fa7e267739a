"""The tables of days: a day's totals, the incidents of a storm, and members that flap."""

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from muster.replay.fleet.disk_space import NoMemory
from muster.replay.fleet.tables import days as days_module
from muster.replay.fleet.tables.builds import Build
from muster.replay.fleet.tables.days import derived
from muster.replay.fleet.tables.parts import Part, PartWriter, Role
from muster.replay.fleet.tables.rows import day_of, micros
from muster.replay.fleet.tables.schemas import RULES_VERSION, TABLES
from muster.replay.text.times import wall_ms_of
from tests.replay.fleet.fleets import Rows, all_tables, built, in_order, judged, opened, rows_of_parts, up_to
from tests.replay.whole import incidents, read_histories

NIGHT = "2026-11-21T23:59:30.000Z"
MINUTE_MS = 60_000
COOPERATIVE = (4, 17, 20)
"""Cases of the judge in which a cooperative assignor moves partitions."""

DEFAULTS: dict[str, dict[str, Any]] = {
    "incidents": {"kind": "crash", "grade": "recorded", "headline": "", "rebalances": 1, "rebalancing_ms": 100},
    "rebalances": {"trigger": "session-expired", "outcome": "stable", "duration_ms": 100, "partition_ms": 1_000},
    "memberships": {"client_id": "app", "client_host": "/10.0.0.7"},
}


def row(table: str, after_ms: int, **given: Any) -> tuple[object, ...]:
    """Return a row of something that began this long after NIGHT; other fields are null, empty or 0."""
    at_ms = wall_ms_of(NIGHT) + after_ms  # type: ignore[arg-type]
    begin = {"incidents": "started_at", "rebalances": "started_at", "memberships": "joined_at"}[table]
    values = {"group_id": "orders", "day": day_of(at_ms), begin: micros(at_ms), **DEFAULTS[table], **given}
    return tuple(values.get(column.name, _nothing(column)) for column in TABLES[table].columns)


def _nothing(column: Any) -> object:
    if column.can_be_null:
        return None
    return {"string": "", "bool": False}.get(str(column.type), [] if str(column.type).startswith("list") else 0)


def written(
    folder: Path, rows: Iterable[tuple[str, tuple[object, ...]]], number: int = 1, role: Role = Role.CLOSED
) -> list[Part]:
    with PartWriter(folder, number) as writer:
        for table, values in rows:
            writer.add(table, values, role)
    return writer.parts


def days(folder: Path, *rows: tuple[str, tuple[object, ...]]) -> dict[str, Rows]:
    """Return the tables of days for these rows."""
    parts = derived(folder, None, written(folder, rows), 1, folder)
    names = ("group_day", "storms", "flapping_members")
    return {name: rows_of_parts(folder, [part for part in parts if part.table == name], name) for name in names}


@pytest.mark.parametrize(("after_ms", "day"), [(2**60, "9999-12-31"), (-(2**60), "0001-01-01")])
def test_a_clock_at_the_end_of_all_years_has_a_day(tmp_path: Path, after_ms: int, day: str) -> None:
    """There is no day after it, which would be read as well."""
    (found,) = days(tmp_path, ("rebalances", row("rebalances", after_ms)))["group_day"]
    assert (str(found["day"]), found["rebalances"]) == (day, 1)


# ---- storms ---------------------------------------------------------------------------------------------------------


def crash(group_id: str, after_ms: int, host: str = "/10.0.0.7", **given: Any) -> tuple[str, tuple[object, ...]]:
    return "incidents", row("incidents", after_ms, group_id=group_id, client_hosts=[host], incident=group_id, **given)


def test_incidents_of_three_groups_and_one_host_are_a_storm(tmp_path: Path) -> None:
    """Each begins within a minute of the previous one; the storm belongs to the day on which the first one began."""
    minute = [crash(name, 30_000 * number) for number, name in enumerate(("a", "b", "c"))]
    (storm,) = days(tmp_path, *minute, crash("d", 3_600_000))["storms"]
    assert (storm["kind"], storm["client_host"], storm["groups"]) == ("host", "10.0.0.7", ["a", "b", "c"])
    assert (storm["started_at"], str(storm["day"])) == (NIGHT, "2026-11-21")
    assert (storm["incidents"], storm["rebalances"], storm["rebalancing_ms"]) == (3, 3, 300)


@pytest.mark.parametrize(
    "rows",
    [
        [crash("a", 0), crash("b", 0)],
        [crash("a", 0), crash("b", 0), crash("b", 1_000), crash("b", 2_000)],
        [crash("a", 0), crash("b", 61_000), crash("c", 122_000)],
        [crash("a", 0), crash("b", 0), crash("c", 0, host="/10.0.0.8")],
        [crash(name, 0, host="/127.0.0.1") for name in "abc"],
        [crash(name, 0, kind="deployment") for name in "abc"],
    ],
    ids=["two groups", "one group again", "too far apart", "several hosts", "no host", "of another kind"],
)
def test_these_are_not_a_storm(rows: list[tuple[str, tuple[object, ...]]], tmp_path: Path) -> None:
    """As in `digest`."""
    assert days(tmp_path, *rows)["storms"] == []


def test_a_coordinators_outage_is_a_storm_whatever_the_hosts(tmp_path: Path) -> None:
    """The unknown part of its cost is left out."""
    rows = [crash(name, 0, host=f"/{name}", kind="coordinator-outage") for name in "abcd"]
    unknown = crash("e", 0, kind="coordinator-change", rebalancing_ms=None)
    (storm,) = days(tmp_path, *rows, unknown)["storms"]
    assert (storm["kind"], storm["client_host"], len(storm["groups"])) == ("coordinator", None, 5)
    assert storm["rebalancing_ms"] == 400


def before_the_next(first: list[Part], made: list[Part]) -> Build:
    return Build(
        number=1, rules=RULES_VERSION, topic="", identity="", engine="local", made_ms=0, until={}, records=0,
        preludes=b"", parts=(*first, *made),
    )  # fmt: skip


def test_a_storm_past_midnight_is_rebuilt_with_the_day_before(tmp_path: Path) -> None:
    """A third group joins it in the next build, on the next day."""
    first = written(tmp_path, [crash("a", 0), crash("b", 0)])
    made = derived(tmp_path, None, first, 1, tmp_path)
    assert not [part for part in made if part.table == "storms"]
    new = written(tmp_path, [crash("c", MINUTE_MS)], 2)
    again = derived(tmp_path, before_the_next(first, made), new, 2, tmp_path)
    (storm,) = rows_of_parts(tmp_path, [part for part in again if part.table == "storms"], "storms")
    assert storm["groups"] == ["a", "b", "c"]


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1), (1, 2, 0), (2, 1, 0)], ids=str)
def test_a_storm_of_days_is_one_wherever_builds_cut_it(order: tuple[int, ...], tmp_path: Path) -> None:
    """The members of a host crash each minute for a week: all its days are rebuilt.

    Partitions of a log are read at different speeds, so the last days may come first.
    """
    rows = [crash("abc"[number % 3], number * MINUTE_MS) for number in range(7 * 24 * 60)]
    month = [crash(name, 30 * 24 * 60 * MINUTE_MS) for name in "abc"]
    (tmp_path / "full").mkdir()
    expected = days(tmp_path / "full", *rows, *month)["storms"]
    assert [(each["incidents"], str(each["day"])) for each in expected] == [(10_080, "2026-11-21"), (3, "2026-12-21")]
    shares = (rows[:4_000], rows[4_000:4_100], [*rows[4_100:], *month])
    closed: list[Part] = []
    made: list[Part] = []
    for number, share in enumerate(order, 1):
        new = written(tmp_path, shares[share], number)
        made = derived(tmp_path, before_the_next(closed, made) if closed else None, new, number, tmp_path)
        closed += new
    found = rows_of_parts(tmp_path, [part for part in made if part.table == "storms"], "storms")
    assert in_order(found) == in_order(expected)


def test_an_open_incident_that_has_changed_leaves_its_day(tmp_path: Path) -> None:
    """For example an incident that becomes part of one of the day before, and has no row of its own any more."""
    still_open = written(tmp_path, [crash(name, 0) for name in "abc"], role=Role.OPEN)
    made = derived(tmp_path, None, still_open, 1, tmp_path)
    assert [part.rows for part in made if part.table == "storms"] == [1]
    new = written(tmp_path, [crash("a", 7 * 24 * 60 * MINUTE_MS)], 2)
    again = derived(tmp_path, before_the_next(still_open, made), new, 2, tmp_path)
    assert {(part.table, part.rows) for part in again} == {("group_day", 1)}


# ---- flapping -------------------------------------------------------------------------------------------------------


def stay(after_ms: int, stayed_ms: int | None, **given: Any) -> tuple[str, tuple[object, ...]]:
    left_ms = None if stayed_ms is None else wall_ms_of(NIGHT) + after_ms + stayed_ms  # type: ignore[arg-type]
    left = {"left_at": None if left_ms is None else micros(left_ms), "stay_ms": stayed_ms}
    return "memberships", row("memberships", after_ms, **left, **given)


def test_a_process_that_joins_again_and_again_flaps(tmp_path: Path) -> None:
    """A dynamic one is identified by client id and host; the rebalances that it started are counted."""
    rows = [stay(-hour * 60 * MINUTE_MS, MINUTE_MS * (hour + 1)) for hour in range(4)]
    own = {"trigger_client_id": "app", "trigger_client_host": "/10.0.0.7"}
    started = ("rebalances", row("rebalances", -1_000, **own))
    (flapping,) = days(tmp_path, *rows, started, stay(0, None, client_id="calm"))["flapping_members"]
    arguments = ("process", "is_static", "stays", "at_once", "shortest_ms", "triggered")
    assert [flapping[name] for name in arguments] == ["app at 10.0.0.7", False, 4, 1, MINUTE_MS, 1]


def test_indistinguishable_processes_do_not_flap_for_being_many(tmp_path: Path) -> None:
    """Five members at once, behind one address, have joined once each."""
    assert days(tmp_path, *(stay(-number * 1_000, None) for number in range(5)))["flapping_members"] == []


def test_an_instance_flaps_whatever_its_host(tmp_path: Path) -> None:
    """It is identified by its instance id."""
    rows = [
        stay(-number * MINUTE_MS, 1_000, group_instance_id="billing-2", client_host=f"/{number}") for number in range(3)
    ]
    (flapping,) = days(tmp_path, *rows)["flapping_members"]
    assert (flapping["process"], flapping["is_static"], flapping["stays"]) == ("billing-2", True, 3)


def incident_row(kind: str, after_ms: int, *culprits: str, took_ms: int = MINUTE_MS) -> tuple[str, tuple[object, ...]]:
    ended_ms = wall_ms_of(NIGHT) + after_ms + took_ms  # type: ignore[arg-type]
    given = {"kind": kind, "culprits": list(culprits), "ended_at": micros(ended_ms)}
    return "incidents", row("incidents", after_ms, **given)


@pytest.mark.parametrize("kind", ["deployment", "blue-green", "assignor-change"])
@pytest.mark.parametrize("instance", [None, "billing-2"])
def test_a_group_that_is_deployed_again_and_again_does_not_flap(
    tmp_path: Path, kind: str, instance: str | None
) -> None:
    """Each process is replaced three times a day; static members also before the deployment's first rebalance."""
    rows = []
    for hour in range(4):
        began_ms, name = -(hour + 1) * 60 * MINUTE_MS, f"app-{hour}"
        rows.append(incident_row(kind, began_ms, f"app-{hour - 1}", instance or name))
        joined_ms = began_ms + (30_000 if instance is None else -30_000)
        rows.append(stay(joined_ms, MINUTE_MS, member_id=name, group_instance_id=instance))
    assert days(tmp_path, *rows)["flapping_members"] == []
    rows += [
        stay(-number * MINUTE_MS, 1_000, member_id=f"own-{number}", group_instance_id=instance) for number in range(3)
    ]
    assert [each["stays"] for each in days(tmp_path / "again", *rows)["flapping_members"]] == [3]


@pytest.mark.parametrize(("kind", "flap"), [("planned", 0), ("coordinator-outage", 0), ("crash-loop", 1)])
def test_members_that_are_brought_back_by_others_do_not_flap(tmp_path: Path, kind: str, flap: int) -> None:
    """They are brought back by a plan, or by an outage that cost them their places; one that leaves by itself flaps."""
    rows = []
    for hour in range(3):
        began_ms = -(hour + 1) * 60 * MINUTE_MS
        rows += [incident_row(kind, began_ms), stay(began_ms + 1_000, MINUTE_MS, member_id=f"app-{hour}")]
    assert len(days(tmp_path, *rows)["flapping_members"]) == flap


# ---- days -----------------------------------------------------------------------------------------------------------


def test_a_day_adds_up_what_began_on_it(tmp_path: Path) -> None:
    """Rebalances, incidents, joins; a membership counts on the day on which it ended."""
    rows = [
        *(("rebalances", row("rebalances", -number, duration_ms=number)) for number in (10, 20)),
        ("rebalances", row("rebalances", MINUTE_MS, duration_ms=None)),
        crash("orders", 0, known_partition_ms=5, grade="unknown"),
        crash("orders", 0, known_partition_ms=7, kind="restart"),
        stay(0, 25 * 60 * MINUTE_MS),
    ]
    reported = days(tmp_path, *rows)["group_day"]
    names = ("rebalances", "rebalancing_ms", "longest_ms", "incidents", "unknown", "worst_kind", "joined", "left")
    assert {str(day["day"])[-2:]: [day[name] for name in names] for day in reported} == {
        "21": [2, 30, 20, 2, 1, "restart", 1, 0],
        "22": [1, 0, None, 0, 0, None, 0, 0],
        "23": [0, 0, None, 0, 0, None, 0, 1],
    }


async def test_partitions_that_moved_are_those_that_the_replay_counts(tmp_path: Path) -> None:
    """Also if a cooperative assignor revokes them in one rebalance, and assigns them in the next."""
    log = judged(COOPERATIVE)
    await built(log, tmp_path)
    expected: Counter[tuple[str, str]] = Counter()
    for history in (await read_histories(await opened(log))).values():
        for incident in incidents(history):
            expected[incident.group_id, incident.started_at[:10]] += incident.cost.partitions_moved or 0
    tables = all_tables(tmp_path)
    reported = {(each["group_id"], str(each["day"])): each["partitions_moved"] for each in tables["group_day"]}
    assert {day: moved for day, moved in reported.items() if moved} == +expected
    alone = sum(each["partitions_moved"] or 0 for each in tables["rebalances"])
    assert sum(reported.values()) > alone > 0


def test_a_changed_day_is_rebuilt_and_the_others_stay(tmp_path: Path) -> None:
    """Also if nothing began on it: an old membership ended."""
    week_ms = 7 * 24 * 60 * MINUTE_MS
    first = written(tmp_path, [("rebalances", row("rebalances", 0)), ("rebalances", row("rebalances", -week_ms))])
    made = derived(tmp_path, None, first, 1, tmp_path)
    before = before_the_next(first, made)
    new = written(tmp_path, [stay(-5 * week_ms, 5 * week_ms)], 2)
    again = [part for part in derived(tmp_path, before, new, 2, tmp_path) if part.table == "group_day"]
    whole = [part for part in derived(tmp_path, None, [*first, *new], 3, tmp_path) if part.table == "group_day"]
    rows = [rows_of_parts(tmp_path, parts, "group_day") for parts in (again, whole)]
    assert in_order(rows[0]) == in_order(rows[1])
    assert len({part.path for part in again} & {part.path for part in made}) == 1, "the day that was not touched"


def test_days_are_the_same_however_many_are_made_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If there are many rows, a few days are made at a time."""
    hours = [hour * 60 * MINUTE_MS for hour in range(60)]
    stays = [stay(after_ms, MINUTE_MS, group_id=f"group-{after_ms % 7}") for after_ms in hours]
    rows = [*stays, *(crash(name, after_ms) for after_ms in hours for name in ("a", "b", "c"))]
    at_once = days(tmp_path / "at-once", *rows)
    monkeypatch.setattr("muster.replay.fleet.tables.days.ROWS_AT_ONCE", 1)
    assert all(at_once.values())
    assert days(tmp_path / "one-by-one", *rows) == at_once


# ---- little memory --------------------------------------------------------------------------------------------------


DAY_MS = 24 * 60 * MINUTE_MS
MANY = 400
LITTLE = "6MB"
MANY_GROUPS = 5_000
"""So many that their day takes DuckDB more than that."""


def test_builds_that_do_not_fit_into_memory_take_a_few_days_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each row of these tables depends on one day only, so that they are the same."""
    rows = [crash(f"group-{group}", DAY_MS * day) for day in range(6) for group in range(MANY)]
    at_once = days(tmp_path / "at-once", *rows)
    requests: list[int] = []
    answered = days_module._answered

    def of_two_at_most(connection: duckdb.DuckDBPyConnection, name: str, some: Sequence[int]) -> pa.Table:
        requests.append(len(some))
        if len(some) > 2 and name != "storms":
            raise duckdb.OutOfMemoryException("Out of Memory Error: failed to pin block")
        return answered(connection, name, some)

    monkeypatch.setattr(days_module, "_answered", of_two_at_most)
    assert days(tmp_path / "by-two", *rows) == at_once
    assert len(at_once["group_day"]) == 6 * MANY
    assert min(requests) <= 2 < max(requests)


def test_a_day_that_is_too_large_may_have_more_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It gets as much as DuckDB finds available; later days keep to the limit."""
    monkeypatch.setattr(days_module, "MEMORY_LIMIT", LITTLE)
    rows = [crash(f"group-{group}", 0) for group in range(MANY_GROUPS)]
    made = days(tmp_path, *rows)
    assert (len(made["group_day"]), [len(storm["groups"]) for storm in made["storms"]]) == (MANY_GROUPS, [MANY_GROUPS])


async def test_a_day_that_does_not_fit_into_memory_is_reported_in_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It names the table and the day; the tables are as before."""

    def too_large(*_: object) -> pa.Table:
        raise duckdb.OutOfMemoryException("Out of Memory Error: failed to pin block")

    storage = judged((3, 14))
    await built(up_to(storage, 0.5), tmp_path / "t")
    before = all_tables(tmp_path / "t")
    monkeypatch.setattr(days_module, "_answered", too_large)
    with pytest.raises(NoMemory, match=r"the table group_day of the day 20\d\d-.* of memory, .*: build on a machine"):
        await built(storage, tmp_path / "t")
    assert all_tables(tmp_path / "t") == before


def test_a_full_disk_is_not_a_lack_of_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """DuckDB has the same error for both; the caller that waits for room gets the message."""
    words = "Out of Memory Error: failed to offload data block; see the 'max_temp_directory_size' setting"
    tries: list[str] = []

    def no_room(_: object, name: str, __: object) -> pa.Table:
        tries.append(name)
        raise duckdb.OutOfMemoryException(words)

    monkeypatch.setattr(days_module, "_answered", no_room)
    with pytest.raises(duckdb.OutOfMemoryException, match="max_temp_directory_size"):
        days(tmp_path, crash("a", 0))
    assert tries == ["group_day"]


def test_nothing_is_written_where_the_command_was_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """DuckDB would spill into the working directory, which may be anyone's."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(days_module, "MEMORY_LIMIT", LITTLE)
    with days_module.connected(tmp_path / "spilled") as connection:
        connection.execute("create table many as select range as number, repeat('x', 100) as text from range(300_000)")
        assert {each.name for each in tmp_path.iterdir()} == {"spilled"}
