"""Finding the end of each field: where kio's writer ended it, whatever is around it, in the same number of steps."""

from io import BytesIO
from typing import Any
from uuid import UUID

import pytest
from kio.index import load_request_schema
from kio.serial import entity_writer

from muster.events.kafka.codec.skipping import count_at, skip_fields, skip_tagged, skipped
from muster.events.kafka.codec.walk import untagged
from muster.events.steps import ENTRIES_PER_STEP, Steps
from tests.coordinator.wire.smallest import arrays_of, smallest
from tests.events.kafka.test_writing import about_topics, by_id, committed, described, fetched, joined

FIND_COORDINATOR, OFFSET_FETCH = 10, 9
IN_FRONT, BEHIND = b"\x7f\xff\x01", b"\x01\x02\x03 whatever"


def gone_through(steps: Steps[int]) -> tuple[list[int], int]:
    """The work of each step, and the offset."""
    work: list[int] = []
    while True:
        try:
            work.append(next(steps))
        except StopIteration as end:
            return work, end.value


def skipped_fields(entity: Any, encoded: bytes) -> tuple[list[int], int]:
    """The work of each step, and how many bytes the fields have, with the tagged ones at their end."""
    data = IN_FRONT + encoded + BEHIND
    work, at = gone_through(skipped(skip_fields(untagged(entity)), data, len(IN_FRONT)))
    return work, (skip_tagged(data, at) if entity.__flexible__ else at) - len(IN_FRONT)


@pytest.mark.parametrize(
    "entity",
    [
        *(joined(version, members) for version in (2, 5, 6, 7, 9) for members in (0, 1, ENTRIES_PER_STEP + 3)),
        *(described(version, groups, 2) for version in (1, 4, 5) for groups in (0, 3)),
        *(committed(version, topics, 3) for version in (6, 8) for topics in (0, 1, 2)),
        *(fetched(version, records) for version in (4, 12) for records in (None, b"", b"records")),
        *(about_topics(version, *names) for version in (8, 9) for names in ((), ("orders",), ("x" * 200, "y"))),
        *(by_id(topic_id) for topic_id in (None, UUID(int=7))),
    ],
    ids=lambda entity: f"{type(entity).__name__} v{entity.__version__}",
)
def test_fields_end_where_kio_has_ended_them(entity: Any) -> None:
    """Whatever is null, empty, nested or long."""
    by_kio = BytesIO()
    entity_writer(type(entity))(by_kio, entity)
    assert skipped_fields(type(entity), by_kio.getvalue())[1] == len(by_kio.getvalue())


@pytest.mark.parametrize(
    ("api_key", "version"),
    [(0, 9), (1, 4), (1, 12), (2, 5), (8, 2), (8, 8), (9, 5), (9, 8), (10, 4), (11, 5), (11, 9), (13, 3), (14, 3),
     (14, 5), (15, 4), (15, 5), (19, 4), (19, 7), (32, 3), (32, 4), (44, 0), (44, 1)],
)  # fmt: skip
def test_each_array_of_a_request_ends_where_its_last_entry_does(api_key: int, version: int) -> None:
    """With none, one and several entries, within another array or alone."""
    entity: Any = load_request_schema(api_key, version)
    for path in arrays_of(entity):
        for entries in (0, 1, 3, 130):
            encoded = smallest(entity, path, entries)
            assert skipped_fields(entity, encoded)[1] == len(encoded)


@pytest.mark.parametrize(
    ("api_key", "version", "path", "work"),
    [
        (FIND_COORDINATOR, 4, ("coordinator_keys",), [ENTRIES_PER_STEP, ENTRIES_PER_STEP, 3]),
        (OFFSET_FETCH, 5, ("topics", "partition_indexes"), [1]),
        (OFFSET_FETCH, 5, ("topics",), [ENTRIES_PER_STEP, ENTRIES_PER_STEP, 3]),
    ],
    ids=["strings", "numbers", "structs"],
)
def test_many_entries_are_many_steps(api_key: int, version: int, path: tuple[str, ...], work: list[int]) -> None:
    """Numbers are skipped in one step, however many they are."""
    entity: Any = load_request_schema(api_key, version)
    encoded = smallest(entity, path, 2 * ENTRIES_PER_STEP + 3)
    assert skipped_fields(entity, encoded) == (work, len(encoded))


@pytest.mark.parametrize(
    ("data", "flexible", "expected"),
    [
        (b"\x00", True, (0, 1)),
        (b"\x01", True, (0, 1)),
        (b"\x04", True, (3, 1)),
        (b"\x81\x01", True, (128, 2)),
        (b"\xff\xff\xff\xff", False, (0, 4)),
        (b"\x00\x00\x00\x00", False, (0, 4)),
        (b"\x00\x00\x01\x02", False, (258, 4)),
    ],
)
def test_null_has_as_many_entries_as_an_empty_array(data: bytes, flexible: bool, expected: tuple[int, int]) -> None:
    assert count_at(data + BEHIND, 0, flexible=flexible) == expected


@pytest.mark.parametrize("tagged", [b"\x00", b"\x01\x00\x00", b"\x02\x05\x01a\x7f\x03abc"])
def test_tagged_fields_are_skipped_whatever_they_are(tagged: bytes) -> None:
    assert skip_tagged(IN_FRONT + tagged + BEHIND, len(IN_FRONT)) == len(IN_FRONT) + len(tagged)
