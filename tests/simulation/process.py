"""A coordinator process in a simulation: a runtime on a memory log, and clients that remember the responses they
got.
"""

import asyncio
import itertools

from kio.schema.errors import ErrorCode

from muster.coordinator.group.commands import (
    AnyRequest,
    Caller,
    CommitOffsets,
    DeleteGroup,
    DescribeGroup,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    LeavingMember,
    OffsetToCommit,
    SyncGroup,
)
from muster.coordinator.group.outcomes import (
    CommitOffsetsOutcome,
    DeleteGroupOutcome,
    DescribeGroupOutcome,
    HeartbeatOutcome,
    JoinGroupOutcome,
    LeaveGroupOutcome,
    Outcome,
    SyncGroupOutcome,
)
from muster.coordinator.group.retention import MINUTE_MS
from muster.coordinator.group.settings import GroupSettings
from muster.coordinator.offsets.base import OffsetStore
from muster.coordinator.offsets.memory import MemoryOffsetStore
from muster.coordinator.runtime.ownership.takeover.ownership_end import EndOf, end_unknown
from muster.coordinator.runtime.partition.group_context import (
    AskAboutSilence,
    GenerationListener,
    ignore_generations,
    members_reachable,
)
from muster.coordinator.runtime.partition.owner import Owner
from muster.coordinator.runtime.partition.refused_joins import RefusedJoins
from muster.coordinator.runtime.partition.retention_clock import RetentionClock
from muster.coordinator.runtime.partition.waiting import RequestBacklog
from muster.coordinator.runtime.runtime import Runtime
from muster.coordinator.service import Groups
from muster.events.ids import GroupId, GroupInstanceId, MemberId
from muster.events.log.memory import MemoryEventLog, MemoryStorage
from muster.events.state import Protocol
from tests.simulation.virtual_time import VirtualClock

GROUP = GroupId("orders")
SETTINGS = GroupSettings(initial_rebalance_delay_ms=100, min_session_timeout_ms=100)

_request_ids = itertools.count(1)
_member_numbers = itertools.count(1)


class SimulatedProcess:
    """One process: started on a storage, stopped cleanly or killed. `lost`: why it could not continue; `group_id`: the
    group that requests are for, from `client_host`.
    """

    _in_front: Groups | None = None

    def __init__(
        self,
        storage: MemoryStorage,
        *,
        offsets: OffsetStore | None = None,
        settings: GroupSettings = SETTINGS,
        batch_bytes_max: int | None = None,
        claim_renewal_ms: int | None = None,
        on_generation: GenerationListener = ignore_generations,
        ask_about_silence: AskAboutSilence = members_reachable,
        clock: VirtualClock | None = None,
        end_of: EndOf = end_unknown,
        backlog: RequestBacklog | None = None,
    ) -> None:
        self.clock = VirtualClock() if clock is None else clock
        limit = {} if batch_bytes_max is None else {"batch_bytes_max": batch_bytes_max}
        self.log = MemoryEventLog(storage, wall_ms=self.clock.wall_ms, claim_renewal_ms=claim_renewal_ms, **limit)
        self.offsets: OffsetStore = MemoryOffsetStore() if offsets is None else offsets
        self.lost: list[Exception] = []
        self.group_id = GROUP
        self.client_host = "/127.0.0.1"
        owner = Owner(
            name="simulated:1",
            version="test",
            event_log=self.log,
            offsets=self.offsets,
            settings=settings,
            effective_settings={"group.max.size": str(settings.max_size)},
            clock=self.clock,
            retention_clock=RetentionClock(self.clock, kept_ms=settings.offsets_retention_minutes * MINUTE_MS),
            refused_joins=RefusedJoins(settings, self.clock.monotonic_ms),
            on_generation=on_generation,
            ask_about_silence=ask_about_silence,
            backlog=RequestBacklog() if backlog is None else backlog,
        )
        self.runtime = Runtime(owner, give_up=self.lost.append, end_of=end_of)

    async def start(self) -> "SimulatedProcess":
        await self.log.open()
        await self.runtime.start()
        return self

    def through(self, groups: Groups) -> None:
        """Have requests go through a layer in front of the runtime from now on."""
        self._in_front = groups

    def submit(self, command: AnyRequest) -> "asyncio.Future[Outcome]":
        """Send a request; the future has its answer."""
        answer: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        requested = type(command).__name__, command.caller  # not the command, whose content must not be kept alive

        def reply(outcome: Outcome) -> None:
            assert not answer.done(), f"answered twice: {requested}"
            answer.set_result(outcome)

        (self._in_front or self.runtime).submit(command, reply)
        return answer

    def caller(self, *, client_id: str = "client", api_key: int = 11, api_version: int = 9) -> Caller:
        return Caller(
            request_id=next(_request_ids),
            client_id=client_id,
            client_host=self.client_host,
            principal="User:ANONYMOUS",
            api_key=api_key,
            api_version=api_version,
            arrived_ms=self.clock.monotonic_ms(),
            arrived_wall_ms=self.clock.wall_ms(),
        )

    # ---- requests, with the defaults of a patient static consumer --------------------------------------

    def join(
        self,
        instance: str | None = None,
        member_id: str = "",
        *,
        group_id: GroupId | None = None,
        metadata: bytes = b"topics",
        session_timeout_ms: int = 10_000,
        rebalance_timeout_ms: int = 30_000,
        requires_known_member_id: bool = False,
        protocol_type: str = "consumer",
        offers: tuple[str, ...] = ("range",),
    ) -> "asyncio.Future[JoinGroupOutcome]":
        command = JoinGroup(
            caller=self.caller(),
            group_id=group_id or self.group_id,
            member_id=MemberId(member_id),
            group_instance_id=None if instance is None else GroupInstanceId(instance),
            proposed_member_id=MemberId(f"{instance or 'dynamic'}-{next(_member_numbers)}"),
            protocol_type=protocol_type,
            protocols=tuple(Protocol(name=name, metadata=metadata) for name in offers),
            session_timeout_ms=session_timeout_ms,
            rebalance_timeout_ms=rebalance_timeout_ms,
            reason=None,
            requires_known_member_id=requires_known_member_id,
            supports_skip_assignment=True,
        )
        return self.submit(command)  # type: ignore[return-value]

    def sync(
        self, joined: JoinGroupOutcome, assignments: dict[str, bytes] | None = None
    ) -> "asyncio.Future[SyncGroupOutcome]":
        """Request the assignment; by default the leader assigns each member its own id."""
        if assignments is None:
            assignments = {member.member_id: member.member_id.encode() for member in joined.members}
        command = SyncGroup(
            caller=self.caller(api_key=14, api_version=5),
            group_id=self.group_id,
            member_id=joined.member_id,
            group_instance_id=None,
            generation_id=joined.generation_id,
            protocol_type="consumer",
            protocol_name=joined.protocol_name,
            assignments=tuple((MemberId(member_id), value) for member_id, value in assignments.items()),
        )
        return self.submit(command)  # type: ignore[return-value]

    def heartbeat_command(self, joined: JoinGroupOutcome) -> Heartbeat:
        return Heartbeat(
            caller=self.caller(api_key=12, api_version=4),
            group_id=self.group_id,
            member_id=joined.member_id,
            group_instance_id=None,
            generation_id=joined.generation_id,
        )

    def heartbeat(self, joined: JoinGroupOutcome) -> "asyncio.Future[HeartbeatOutcome]":
        return self.submit(self.heartbeat_command(joined))  # type: ignore[return-value]

    def leave(self, *member_ids: str) -> "asyncio.Future[LeaveGroupOutcome]":
        members = tuple(
            LeavingMember(member_id=MemberId(member_id), group_instance_id=None, reason=None)
            for member_id in member_ids
        )
        command = LeaveGroup(caller=self.caller(api_key=13, api_version=5), group_id=self.group_id, members=members)
        return self.submit(command)  # type: ignore[return-value]

    def commit(
        self,
        offset: int,
        joined: JoinGroupOutcome | None = None,
        *,
        group_id: GroupId | None = None,
        topic: str = "orders",
        retention_ms: int | None = None,
    ) -> "asyncio.Future[CommitOffsetsOutcome]":
        one = OffsetToCommit(
            topic=topic,
            partition=0,
            offset=offset,
            leader_epoch=-1,
            metadata="",
            commit_ms=self.clock.wall_ms(),
            expire_ms=None if retention_ms is None else self.clock.wall_ms() + retention_ms,
        )
        command = CommitOffsets(
            caller=self.caller(api_key=8, api_version=9),
            group_id=group_id or self.group_id,
            member_id=joined.member_id if joined else MemberId(""),
            group_instance_id=None,
            generation_id=joined.generation_id if joined else -1,
            unknown_group_error=ErrorCode.group_id_not_found,
            offsets=(one,),
        )
        return self.submit(command)  # type: ignore[return-value]

    def describe(self, group_id: GroupId | None = None) -> "asyncio.Future[DescribeGroupOutcome]":
        command = DescribeGroup(caller=self.caller(api_key=15, api_version=6), group_id=group_id or self.group_id)
        return self.submit(command)  # type: ignore[return-value]

    def delete(self, group_id: GroupId | None = None) -> "asyncio.Future[DeleteGroupOutcome]":
        command = DeleteGroup(caller=self.caller(api_key=42, api_version=2), group_id=group_id or self.group_id)
        return self.submit(command)  # type: ignore[return-value]

    async def stable_group(self, *instances: str) -> dict[str, JoinGroupOutcome]:
        """A stable group of these static members: the join responses."""
        joins = {instance: self.join(instance) for instance in instances}
        reported = {instance: await join for instance, join in joins.items()}
        syncs = [self.sync(joined) for joined in reported.values()]
        for sync in syncs:
            assert (await sync).error is ErrorCode.none
        return reported
