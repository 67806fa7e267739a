"""Random UUIDs for the ids of members."""

import os
import uuid

import pytest

from muster.coordinator.random_uuids import UUIDS_AT_ONCE, RandomUuids


def test_random_bytes_are_read_for_many_uuids_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each call releases the interpreter lock, so a join would wait while the log's thread works."""
    requests: list[int] = []
    random_bytes = os.urandom

    def counted(size: int) -> bytes:
        requests.append(size)
        return random_bytes(size)

    monkeypatch.setattr("os.urandom", counted)
    uuids = RandomUuids()
    made = [uuids.next() for _ in range(2 * UUIDS_AT_ONCE)]
    assert len(requests) == 2
    assert len(set(made)) == len(made)
    assert {(uuid.UUID(each).version, str(uuid.UUID(each)) == each) for each in made} == {(4, True)}
