"""A group and the processes around it, controlled by two numbers per step: for searching tests.

Each method of `World` in `STEPS` is one step; `i` and `j` choose the process and a variant. A step that makes no sense
does nothing. This module asserts what no process may ever see; the group's invariants are in `invariants.py`.
"""

from collections.abc import Callable
from typing import Any

from kio.schema.errors import ErrorCode

from muster.coordinator.group.commands import ConfigOperation, JoinGroup, LeavingMember
from muster.coordinator.group.configs import (
    EXPANSION_DELAY,
    LEARNER_TIMEOUT,
    LEARNERS,
    REBALANCE,
    REGISTERED,
    REGISTRATION_TIMEOUT,
    RETIRED,
    RETIREMENT_TIMEOUT,
    TARGET_GROUP_SIZE,
)
from muster.coordinator.group.settings import INT32_MAX
from muster.events.consumer_protocol import encode_assignment
from muster.events.events import StaticMemberReplaced
from muster.events.ids import UNKNOWN_MEMBER_ID, GroupInstanceId, MemberId
from muster.events.state import GroupState
from tests.coordinator.group.client import Call, Client, protocols, subscription
from tests.coordinator.group.deadlines import next_deadline_ms
from tests.coordinator.group.harness import DELAY_MS, GROUP_ID, Harness
from tests.coordinator.group.promises import check_shares

INSTANCES = ("a", "b", "c")
VERSIONS = (3, 4, 9)
PROTOCOLS = (
    protocols("range"),
    protocols("range", "sticky"),
    protocols("sticky", "range"),
    protocols("range", metadata=subscription("payments")),
    protocols("range", metadata=b"x" * 60),
)
SESSION_TIMEOUTS_MS = (6_000, 10_000, 45_000)
REBALANCE_TIMEOUTS_MS = (1_000, 20_000, 60_000)
PLANS = (
    (TARGET_GROUP_SIZE, ConfigOperation.SET, "1"),
    (TARGET_GROUP_SIZE, ConfigOperation.SET, "2"),
    (TARGET_GROUP_SIZE, ConfigOperation.DELETE, None),
    (REGISTERED, ConfigOperation.APPEND, "b"),
    (REGISTERED, ConfigOperation.SET, "a,c"),
    (REGISTERED, ConfigOperation.DELETE, None),
    (REGISTRATION_TIMEOUT, ConfigOperation.SET, "7000"),
    (EXPANSION_DELAY, ConfigOperation.SET, "25000"),
    (EXPANSION_DELAY, ConfigOperation.DELETE, None),
    (LEARNER_TIMEOUT, ConfigOperation.SET, "8000"),
    (LEARNER_TIMEOUT, ConfigOperation.DELETE, None),
    (LEARNERS, ConfigOperation.SUBTRACT, "(somebody)"),
    (RETIRED, ConfigOperation.APPEND, "(somebody)"),
    (RETIRED, ConfigOperation.APPEND, "(somebody)"),
    (RETIRED, ConfigOperation.DELETE, None),
    (RETIREMENT_TIMEOUT, ConfigOperation.SET, "30000"),
    (REBALANCE, ConfigOperation.SET, "force"),
)
NAPS_MS = (0, 1, 500, 1_000, DELAY_MS, 5_000, 9_000, 60_000)
LONGEST_WAIT_MS = max(REBALANCE_TIMEOUTS_MS)
PROCESSES = 8
REFUSALS = {
    ErrorCode.unknown_member_id,
    ErrorCode.fenced_instance_id,
    ErrorCode.group_max_size_reached,
    ErrorCode.inconsistent_group_protocol,
}


class World:
    """See the module."""

    def __init__(self, *, group_id: str = GROUP_ID, max_size: int = INT32_MAX, delay_ms: int = DELAY_MS) -> None:
        self.harness = Harness(group_id=group_id, max_size=max_size, initial_rebalance_delay_ms=delay_ms)
        self.processes: list[Client] = []

    def check(self) -> None:
        """No request waits for longer than the longest rebalance timeout; no two members share an assignment."""
        if self.harness.group is not None:
            check_shares(self.harness.group)
        for call in self.harness.open_calls():
            assert self.harness.now_ms - call.command.caller.arrived_ms <= LONGEST_WAIT_MS, call.command

    def finish(self, *, late_ms: int = 0) -> None:
        """When all fall silent, the group is soon empty, and every request has been answered.

        `late_ms`: the stall of the machine at each deadline.
        """
        longest_ms = LONGEST_WAIT_MS + max(SESSION_TIMEOUTS_MS) + LONGEST_WAIT_MS
        ran_ms = 0
        while late_ms and self.harness.state not in (None, GroupState.EMPTY):  # registered members are awaited
            ran_ms += self.harness.stand_still(late_ms)
            assert ran_ms <= 2 * longest_ms, "the dead stay"
        self.harness.sleep(longest_ms)
        assert self.harness.state in (None, GroupState.EMPTY)
        assert not self.harness.open_calls()

    # ---- steps ----------------------------------------------------------------------------------

    def start_static(self, i: int, j: int) -> None:
        """A process with an instance id starts, restarts, or starts a second time."""
        self._start(self.harness.static(INSTANCES[i % 3]), i // 3, j)

    def start_dynamic(self, i: int, j: int) -> None:
        self._start(self.harness.dynamic(), i, j)

    def rejoin(self, i: int, j: int) -> None:
        """Rejoin with the known id, or the one from error 79; usually with the same protocols."""
        if client := self._one(i):
            if j % 4 == 3:
                client.protocols = PROTOCOLS[j // 4 % len(PROTOCOLS)]
            self._fenced_or_not(client.member_id, client.join)

    def start_over(self, i: int, _j: int) -> None:
        """Start over, as a client does after error 25."""
        if client := self._one(i):
            client.member_id = UNKNOWN_MEMBER_ID
            client.join()

    def sync(self, i: int, j: int) -> None:
        if client := self._one(i):
            assignments = self._assignments() if self.harness.group is not None and j % 4 else {}
            self._fenced_or_not(client.member_id, lambda: client.sync(assignments))

    def sync_everybody(self, _i: int, _j: int) -> None:
        for client in list(self.processes):
            if self.harness.group is not None and client.member_id in self.harness.group.members:
                client.sync(self._assignments())

    def behave(self, _i: int, _j: int) -> None:
        """All act like real clients until the group is stable or nothing changes any more."""
        for _ in range(6):
            for client in list(self.processes):
                if client.last_join is not None and client.last_join.parked:
                    continue
                match client.heartbeat().error:
                    case ErrorCode.none:
                        pass
                    case ErrorCode.unknown_member_id:
                        client.member_id = UNKNOWN_MEMBER_ID
                        client.enter()
                    case ErrorCode.fenced_instance_id:
                        self.processes.remove(client)
                    case _:
                        client.join()
            self.sync_everybody(0, 0)
            if self.harness.state is GroupState.PREPARING_REBALANCE:
                self.harness.sleep_until_next()

    def heartbeat(self, i: int, j: int) -> None:
        if client := self._one(i):
            named: dict[str, Any] = {} if j % 4 else {"group_instance_id": None}
            self._fenced_or_not(client.member_id, lambda: client.heartbeat(**named))

    def heartbeat_everybody(self, _i: int, _j: int) -> None:
        for client in self.processes:
            self._fenced_or_not(client.member_id, client.heartbeat)

    def commit(self, i: int, j: int) -> None:
        if client := self._one(i):
            generation_id = (client.generation_id, -1, 0, 7)[j % 4]
            group_before = self.harness.state
            call = client.commit(generation_id=generation_id)
            if client.member_id in self._replaced() and group_before not in (None, GroupState.EMPTY):
                assert call.error is not ErrorCode.none

    def leave(self, i: int, _j: int) -> None:
        if client := self._one(i):
            was_replaced = client.member_id in self._replaced()
            error = client.leave().outcome.members[0].error
            assert not was_replaced or error is not ErrorCode.none

    def remove(self, i: int, j: int) -> None:
        """An administrator removes instances, known or not, and other members that the numbers choose."""
        entries = [
            LeavingMember(member_id=UNKNOWN_MEMBER_ID, group_instance_id=GroupInstanceId(instance), reason=None)
            for bit, instance in enumerate((*INSTANCES, "ghost"))
            if i >> bit & 1
        ]
        if client := self._one(j):
            entries.append(LeavingMember(member_id=client.member_id, group_instance_id=None, reason="j"))
        self.harness.leave(*entries)

    def steal(self, i: int, j: int) -> None:
        """A request with foreign ids: another's instance id, another's member id, or an unknown id."""
        client, other = self._one(i), self._one(j)
        if client is None or other is None:
            return
        instance = GroupInstanceId(INSTANCES[(i + j) % 3])
        match j % 4:
            case 0:
                client.heartbeat(group_instance_id=instance)
            case 1:
                client.join(group_instance_id=instance)
            case 2:
                client.join(member_id=MemberId("nobody"))
            case _:
                client.sync(member_id=other.member_id)

    def nap(self, i: int, _j: int) -> None:
        self.harness.sleep(NAPS_MS[i % len(NAPS_MS)])

    def wait(self, _i: int, _j: int) -> None:
        """Advance to the next deadline."""
        if next_deadline_ms(self.harness.soft) != float("inf"):
            self.harness.sleep_until_next()

    def take_over(self, i: int, _j: int) -> None:
        """Take over. Some clients retry their lost joins with the id proposed before."""
        lost = [
            (client, call.command.proposed_member_id)
            for client, call in self._parked_joins()
            if isinstance(call.command, JoinGroup) and client.member_id == UNKNOWN_MEMBER_ID
        ]
        self.harness.takeover()
        for n, (client, proposed) in enumerate(lost):
            if i >> n & 1:
                client.join(proposed_member_id=proposed)

    def fail_to_store(self, _i: int, _j: int) -> None:
        """The leader's assignment cannot be stored."""
        h = self.harness
        if h.group is not None and h.state is GroupState.COMPLETING_REBALANCE:
            leader = next((c for c in self.processes if c.member_id == h.live.leader_id), None)
            if leader is not None and leader.generation_id == h.live.generation_id:
                h.reject_late(leader, ErrorCode.unknown_server_error)

    def delete(self, i: int, _j: int) -> None:
        if i % 2:
            self.harness.delete()
        else:
            self.harness.describe()
            self.harness.delete_offsets(("orders", 0))

    def plan(self, i: int, j: int) -> None:
        """An administrator changes the group's configs; impossible changes are refused."""
        name, operation, value = PLANS[i % len(PLANS)]
        if value == "(somebody)":
            client = self._one(j)
            if client is None:
                return
            value = client.instance or client.member_id
        self.harness.alter((name, operation, value), validate_only=j % 8 == 7)
        self.harness.describe_config()

    # ---- choices -------------------------------------------------------------------------------

    def _start(self, client: Client, i: int, j: int) -> None:
        client.version = VERSIONS[i % 3]
        client.protocols = PROTOCOLS[j % len(PROTOCOLS)]
        client.session_timeout_ms = SESSION_TIMEOUTS_MS[j // 5 % 3]
        client.rebalance_timeout_ms = REBALANCE_TIMEOUTS_MS[j // 15 % 3]
        self.processes = [*self.processes[-PROCESSES + 1 :], client]
        client.enter()

    def _assignments(self) -> dict[MemberId, bytes]:
        """Like a consumer's assignor: one partition for each member."""
        members = enumerate(sorted(self.harness.live.members))
        return {member_id: encode_assignment({"orders": [number]}) for number, member_id in members}

    def _one(self, i: int) -> Client | None:
        return self.processes[i % len(self.processes)] if self.processes else None

    def _parked_joins(self) -> list[tuple[Client, Call[Any]]]:
        return [
            (client, client.last_join)
            for client in self.processes
            if client.last_join is not None and client.last_join.parked
        ]

    def _replaced(self) -> set[MemberId]:
        return {e.replaced_member_id for e in self.harness.events if isinstance(e, StaticMemberReplaced)}

    def _fenced_or_not(self, member_id: MemberId, request: Callable[[], Call[Any]]) -> None:
        """Check that a replaced process never succeeds again, and never waits."""
        was_replaced = member_id in self._replaced()
        call = request()
        if was_replaced:
            assert call.error in REFUSALS, call.command


STEPS: tuple[Callable[[World, int, int], None], ...] = (
    World.start_static,
    World.start_dynamic,
    World.rejoin,
    World.start_over,
    World.sync,
    World.sync_everybody,
    World.heartbeat,
    World.heartbeat_everybody,
    World.commit,
    World.leave,
    World.remove,
    World.steal,
    World.nap,
    World.wait,
    World.take_over,
    World.fail_to_store,
    World.delete,
    World.plan,
    World.behave,
)
