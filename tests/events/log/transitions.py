"""Transitions for tests of event logs, and reading them, checked and all at once."""

import hashlib
from collections.abc import Iterable
from itertools import pairwise

from muster.events.log.base import EventLog
from muster.events.records import Record, StoredRecord, Transition


def record(key: str, value: str | None = "value") -> Record:
    return Record(key.encode(), None if value is None else value.encode())


def transition(name: str, *, records: int = 2) -> Transition:
    """Return records whose values contain the number of their transition, their number in it, and its size."""
    return tuple(record(f"{name}-{index}", f"{name} {index} {records}") for index in range(records))


def incompressible(size_bytes: int, seed: str) -> bytes:
    """The same bytes for the same seed; no compression makes a batch of them smaller."""
    return hashlib.shake_128(seed.encode()).digest(size_bytes)


async def read_all(log: EventLog, partition: int = 0, *, start: int = 0, end: int | None = None) -> list[StoredRecord]:
    return [stored async for chunk in log.read(partition, start=start, end=end) for stored in chunk]


def records_of(stored: Iterable[StoredRecord]) -> list[Record]:
    return [Record(one.key, one.value) for one in stored]


def flat(transitions: Iterable[Transition]) -> list[Record]:
    return [one for each in transitions for one in each]


def assert_in_order(stored: list[StoredRecord]) -> None:
    assert all(before.offset < after.offset for before, after in pairwise(stored))


def assert_whole(stored: list[StoredRecord]) -> None:
    """Every transition made by `transition()` is there from first record to last, at a stretch, once."""
    seen: set[str] = set()
    expected: tuple[str, int, int] | None = None
    for one in stored:
        assert one.value is not None
        name, index, records = one.value.decode().split()
        found = (name, int(index), int(records))
        if expected is None:
            assert found[1] == 0, f"{name} begins with its record {index}"
            assert name not in seen, f"{name} is there twice"
            seen.add(name)
        else:
            assert found == expected
        expected = (name, found[1] + 1, found[2]) if found[1] + 1 < found[2] else None
    assert expected is None, f"{expected} is missing"
