"""The states of a partition, and the existing transitions."""

import asyncio
import inspect
import re
import typing
from typing import Any

import pytest

from muster.coordinator.runtime.ownership import partition_state
from muster.coordinator.runtime.ownership.owned_partition import OwnedPartition
from muster.coordinator.runtime.ownership.partition_state import (
    NOT_ASSIGNED,
    Assigned,
    Closing,
    Failed,
    NotAssigned,
    NotReadable,
    PartitionState,
    Serving,
    TakingOver,
)

STATES: tuple[type[Any], ...] = typing.get_args(PartitionState)


class Tasks:
    """Tasks and an ownership, of which states only test the presence."""

    first: asyncio.Task[None] = typing.cast("asyncio.Task[None]", "the first attempt")
    again: asyncio.Task[None] = typing.cast("asyncio.Task[None]", "further attempts")
    closing: asyncio.Task[None] = typing.cast("asyncio.Task[None]", "the end")
    ownership: OwnedPartition = typing.cast("OwnedPartition", "the ownership")


T = Tasks
TAKEN_FIRST = TakingOver(attempt=T.first, is_read=False)
TAKEN_AGAIN = TakingOver(attempt=T.again, closing=T.closing, is_read=True)
SERVING = Serving(ownership=T.ownership)


def transitions() -> set[tuple[str, str, str]]:
    """Each method that leads from a state to a state: from, by, to."""
    found = set[tuple[str, str, str]]()
    for state in STATES:
        for name, method in inspect.getmembers(state, inspect.isfunction):
            returned = typing.get_type_hints(method, vars(partition_state)).get("return")
            if returned in STATES:
                found.add((state.__name__, name, returned.__name__))
    return found


def described() -> set[tuple[str, str, str]]:
    """The table in the module's opening."""
    found, before = set[tuple[str, str, str]](), ""
    names = "|".join(state.__name__ for state in STATES)
    for line in (partition_state.__doc__ or "").splitlines():
        if row := re.match(rf"    ({names}|  )\s+(\w+)\s+({names})\b", line):
            before = row[1].strip() or before
            found.add((before, row[2], row[3]))
    found -= {(before, by, to) for before, by, to in found if by == "released"}
    return found | {(each.__name__, "released", "Closing") for each in STATES if issubclass(each, Assigned)}


def test_the_table_has_each_transition_and_no_other() -> None:
    assert transitions() == described()
    assert len(transitions()) == 15


def test_a_first_takeover_ends_in_each_of_its_ways() -> None:
    """Until it is served nothing of the partition was read."""
    assert NOT_ASSIGNED.assigned(T.first) == TAKEN_FIRST
    assert TAKEN_FIRST.served(T.ownership) == SERVING
    assert TAKEN_FIRST.not_available(T.again) == TakingOver(attempt=T.again, is_read=False)
    assert TAKEN_FIRST.unreadable("offset 7") == NotReadable(reason="offset 7", is_read=False)
    assert TAKEN_FIRST.failed("denied") == Failed(reason="denied", is_read=False)
    assert TAKEN_FIRST.overtaken() is NOT_ASSIGNED


def test_a_partition_that_is_lost_for_now_was_read_and_waits_for_its_end() -> None:
    """A later attempt need not wait again."""
    assert SERVING.lost_for_now(T.again, T.closing) == TAKEN_AGAIN
    assert TAKEN_AGAIN.not_available(T.first) == TakingOver(attempt=T.first, is_read=True)
    assert TAKEN_AGAIN.unreadable("offset 7") == NotReadable(reason="offset 7", is_read=True)
    assert TAKEN_AGAIN.failed("a bug") == Failed(reason="a bug", is_read=True)


def test_a_lost_partition_has_an_ownership_to_close() -> None:
    assert SERVING.failed("moved away") == Failed(reason="moved away", ownership=T.ownership, is_read=True)


def test_a_deposed_partition_is_another_process_s_at_once_and_a_released_one_when_it_is_closed() -> None:
    assert SERVING.deposed(T.closing) == Closing(closing=T.closing, is_read=False)
    assert SERVING.released(T.closing) == Closing(closing=T.closing, is_read=True)


@pytest.mark.parametrize("is_read", [False, True])
def test_a_partition_that_is_not_served_can_be_released(is_read: bool) -> None:
    states = (
        TakingOver(attempt=T.first, is_read=is_read),
        NotReadable(reason="offset 7", is_read=is_read),
        Failed(reason="denied", is_read=is_read),
    )
    for state in states:
        assert state.released(T.closing) == Closing(closing=T.closing, is_read=is_read)


def test_a_partition_that_is_assigned_while_it_closes_waits_for_that() -> None:
    closing = SERVING.released(T.closing)
    assert closing.assigned(T.first) == TakingOver(attempt=T.first, closing=T.closing, is_read=False)
    assert closing.closed() is NOT_ASSIGNED
    assert not NotAssigned().is_read
