"""The rules match the table of answers by state in the package's opening."""

from collections.abc import Callable
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from muster.coordinator import group as rules
from muster.coordinator.group.outcomes import LeaveGroupOutcome
from muster.events.ids import UNKNOWN_MEMBER_ID
from muster.events.state import GroupState
from tests.coordinator.group.client import Call, Client, protocols
from tests.coordinator.group.harness import Harness

STATES: dict[str, GroupState | None] = {
    "E": GroupState.EMPTY,
    "P": GroupState.PREPARING_REBALANCE,
    "C": GroupState.COMPLETING_REBALANCE,
    "S": GroupState.STABLE,
    "D": None,  # Dead groups are not kept
}

LINES = [line for line in (rules.__doc__ or "").splitlines() if line.startswith("| ")]
HEADER, *ROWS = [[cell.strip() for cell in line.strip("|").split("|")] for line in LINES]
CELLS = [
    (request, GroupState(state), cell)
    for request, *cells in ROWS
    for state, cell in zip(HEADER[1:], cells, strict=True)
]

Members = tuple[Client, Client, Client]
REQUESTS: dict[str, Callable[[Harness, Members], Call[Any]]] = {
    "JoinGroup, new member": lambda h, _: h.dynamic("new", version=3).join(),
    "JoinGroup, new, v4+": lambda h, _: h.dynamic("new", version=4).join(),
    "JoinGroup, rejoin": lambda _, members: members[1].join(),
    "JoinGroup, rejoin of leader": lambda _, members: members[0].join(),
    "JoinGroup, metadata changed": lambda _, members: members[1].join(protocols=protocols("range", metadata=b"other")),
    "SyncGroup, follower": lambda _, members: members[1].sync(),
    "SyncGroup, leader": lambda h, members: members[0].sync(h.assignments() if h.group else {}),
    "Heartbeat": lambda _, members: members[1].heartbeat(),
    "LeaveGroup": lambda _, members: members[1].leave(),
    "OffsetCommit": lambda _, members: members[1].commit(),
    "OffsetCommit, generation -1": lambda _, members: members[1].commit(member_id=UNKNOWN_MEMBER_ID, generation_id=-1),
    "DeleteGroups": lambda h, _: h.delete(),
}


def test_every_row_is_played() -> None:
    """Each state has a column."""
    assert [row[0] for row in ROWS] == list(REQUESTS)
    assert HEADER[1:] == [state.value for state in GroupState]


@pytest.mark.parametrize(("request_name", "state", "cell"), CELLS, ids=str)
def test_the_answer_is_that_of_the_table(request_name: str, state: GroupState, cell: str) -> None:
    """The error or the wait, and the resulting state of the group."""
    h = Harness()
    members = _group_in(h, state)
    answer, _, after = cell.partition(" > ")
    call = REQUESTS[request_name](h, members)
    assert _answer(call) == answer
    assert h.state is (STATES[after] if after else None if state is GroupState.DEAD else state)


def _answer(call: Call[Any]) -> str:
    if call.parked:
        return "waits"
    outcome = call.outcome
    if isinstance(outcome, LeaveGroupOutcome) and outcome.error is ErrorCode.none:
        return str(outcome.members[0].error.value)
    return str(outcome.error.value)


def _group_in(h: Harness, state: GroupState) -> Members:
    """A group in this state with these members (present or former), the leader first. The last one keeps a join phase
    open.
    """
    leader, follower, other = members = (h.dynamic("a"), h.dynamic("b"), h.dynamic("c"))
    h.form(*members)
    if state is GroupState.COMPLETING_REBALANCE:
        return members
    h.sync_all(*members)
    assert leader.is_leader
    if state is GroupState.PREPARING_REBALANCE:
        h.dynamic("d", version=3).join()
    if state in (GroupState.EMPTY, GroupState.DEAD):
        for member in members:
            member.leave()
    if state is GroupState.DEAD:
        h.delete()
    assert h.state is (None if state is GroupState.DEAD else state)
    assert other.joined is not None
    return leader, follower, other
