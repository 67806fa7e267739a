"""This process as a static member of the ownership group, the consumer group of the processes of one event log.

Joins, syncs, sends heartbeats and leaves; decisions are acted on elsewhere. An owner serves its partitions until they
are assigned to another process, not until the group rebalances: while the group's coordinator upstream is unreachable,
or this process has lost its session, nothing changes here. A process that still serves a partition after another one
has claimed it learns that from the log. Foreign clients, and processes of another version or in front of another
cluster, get no partitions as members; if one of them leads the group, nothing changes here either. But a process that
has never been a member exits if others are of another version or in front of another cluster, or if the group belongs
to other clients (INCONSISTENT_GROUP_PROTOCOL).

The instance id consists of the log's identity and the node id, so a process that restarts within its session is the
same member, and owns what it owned without a rebalance (KIP-345). A second process with the same node id takes the
place of the first one, which then exits because of FENCED_INSTANCE_ID (82).
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final

import msgspec
import structlog
from kio.schema.errors import ErrorCode

from muster.coordinator.log_throttle import LogThrottle, LossThrottle
from muster.coordinator.peers.sharing import (
    AnotherLevel,
    AnotherUpstream,
    Candidate,
    CannotShare,
    MemberIdentity,
    NotUnderstood,
    Peer,
    Sharing,
    candidate_of,
    encode,
    refuse_another_upstream,
    seen_by_all,
    sharing_of,
)
from muster.coordinator.upstream.errors import UpstreamRefused
from muster.coordinator.upstream.group_requests import AsMember, GroupRequest, heartbeat, join, leave, sync
from muster.coordinator.upstream.upstream_link import UpstreamLink
from muster.events.kafka.errors import LinkError, TryAgain
from muster.events.log.base import LogMismatch

log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)

PROTOCOL_TYPE: Final = "muster-owners"
"""Not `muster`, which shadows use: only Muster's own processes are in this group."""

HEARTBEATS_A_SESSION: Final = 20
"""Members only learn of a rebalance from their next heartbeat, and all others wait for that, so heartbeats are
frequent.
"""

SOON_S: Final = 0.01
"""Pause before the next heartbeat when a rebalance is expected; it doubles up to the normal interval."""

DESCRIBE_HINT: Final = "DescribeGroups of an AdminClient shows who (Kafka's tools describe no such group)"

CANNOT_JOIN: Final = "cannot join the ownership group yet, retrying; this process gets no partitions before that"
CANNOT_REJOIN: Final = "cannot rejoin the ownership group; still serving assigned partitions"

RETRY_S: Final = 0.5
LEAVE_TIMEOUT_S: Final = 5.0


class NodeIdTaken(LogMismatch):
    """Another process with this node id is in the group; if this one restarted, it would fence the other."""


class OwnershipGroup:
    """This process's membership. `candidate` builds a join's metadata from the join's number; `decide` assigns.

    `on_decision` is called with each decision, including an earlier one that is still valid.
    """

    def __init__(
        self,
        link: UpstreamLink,
        who: AsMember,
        *,
        candidate: Callable[[int], Candidate],
        decide: Callable[[Sequence[Candidate]], Sharing],
        on_decision: Callable[[Sharing], None],
        session_timeout_ms: int,
        monotonic_ms: Callable[[], int],
        upstream: str = "",
    ) -> None:
        """`upstream`: the id of the cluster that this process is in front of; empty: standalone."""
        self._link = link
        self._upstream = upstream
        self._who = who
        self._candidate = candidate
        self._decide = decide
        self._on_decision = on_decision
        self._session_timeout_ms = session_timeout_ms
        self._throttle = LogThrottle(monotonic_ms)
        self._losses = LossThrottle(monotonic_ms)
        self.member_id = ""
        """The member id assigned by the group's coordinator; empty before that."""
        self._joins = 0
        self._is_to_join_again = False
        self._has_taken_part = False
        self._woken = asyncio.Event()
        self._interval_s = self._pause_s = session_timeout_ms / HEARTBEATS_A_SESSION / 1000
        self.trouble: str | None = None
        """Human-readable reason why this process is not in the group now."""

    def join_again(self) -> None:
        """Rejoin soon, because the partitions that this process owns have changed."""
        self._is_to_join_again = True
        self._woken.set()

    def expect_rebalance(self) -> None:
        """Send heartbeats frequently for a while, as a rebalance is expected: all members wait for the slowest."""
        self._pause_s = SOON_S
        self._woken.set()

    async def take_part(self) -> None:
        """Stay in the group forever. Raises LogMismatch if this process must not take part, and NodeIdTaken."""
        opened = False
        while True:
            try:
                if not opened:
                    await self._link.open()
                    opened = True
                await self._be_in_one_generation()
            except TryAgain as error:
                self._failed(str(error))
                await asyncio.sleep(RETRY_S)
            except NodeIdTaken:
                raise
            except (UpstreamRefused, CannotShare, LogMismatch) as error:
                if isinstance(error, UpstreamRefused) and error.error is ErrorCode.group_authorization_failed:
                    self._failed(self._lacks_read)  # an ACL was removed; ending this process would help no client
                elif self._has_taken_part:
                    self._failed(str(error))
                else:
                    raise LogMismatch(f"consumer group {self._who.group_id}: {error}") from error
                await asyncio.sleep(RETRY_S)

    async def leave(self) -> None:
        """Leave the group immediately, so that the others need not wait for the session to expire."""
        if not self.member_id:
            return
        request = leave(self._who, self.member_id, reason="the process is stopping and has released its partitions")
        with suppress(LinkError, TimeoutError):  # otherwise the session expires by itself
            async with asyncio.timeout(LEAVE_TIMEOUT_S):
                await self._ask(request, lane="leave")

    async def remove(self, peer: Peer) -> bool:
        """Remove a process that is gone from the group, so that its session need not expire first (KIP-345).

        The request includes its member id: a process that was restarted has another one, and stays. Returns whether
        this process was the one that removed it.
        """
        who = msgspec.structs.replace(self._who, group_instance_id=peer.member.group_instance_id)
        at = f"{peer.node.host}:{peer.node.port}"
        request = leave(who, peer.member.member_id, reason=f"its process has ended: {at} refuses connections")
        removal = None
        try:
            removal, _ = await self._ask(request, lane="leave")
        except LinkError as failed:
            then = f"missed when its session ends: {failed}"
        else:
            then = _what_then(removal)
        evidence = "its connection broke, and its address refuses new ones"
        log.warning("peer process ended", node_id=peer.node.node_id, address=at, evidence=evidence, then=then)
        self.join_again()  # no matter which process removed it, the group reassigns its partitions
        return removal is ErrorCode.none

    async def _be_in_one_generation(self) -> None:
        self._is_to_join_again = False
        joined = await self._join()
        if joined is None:
            return
        decided = {}
        if joined.leader == joined.member_id and not joined.skip_assignment:
            decided = dict.fromkeys((each.member_id for each in joined.members), encode(self._shared_among(joined)))
        generation_id = int(joined.generation_id)
        error, answer = await self._ask(sync(self._who, self.member_id, generation_id, decided), lane="sync")
        if not self._goes_on(error, "SyncGroup"):
            return
        try:
            sharing = sharing_of(answer.assignment)
            refuse_another_upstream(sharing, self._upstream)
        except NotUnderstood as error:
            if isinstance(error, CannotShare) and not self._has_taken_part:
                raise
            # The leader stays the same until it leaves, so wait for its next decision.
            self._failed(
                f"member {joined.leader} leads consumer group {self._who.group_id}: {error}; until it is replaced, "
                f"no process takes over from one that ends. What helps: {_way_out(error)}"
            )
            await self._heartbeats(generation_id, is_in=False)
            return
        self._has_taken_part = True
        self._is_in()
        self._on_decision(sharing)
        await self._heartbeats(generation_id)

    def _shared_among(self, joined: Any) -> Sharing:  # noqa: ANN401 -- JoinGroupResponse
        candidates, members, not_understood = [], {}, []
        for each in joined.members:
            try:
                candidate = candidate_of(each.metadata, each.group_instance_id)
                refuse_another_upstream(candidate, self._upstream)
            except NotUnderstood as error:
                if isinstance(error, CannotShare) and not self._has_taken_part:
                    raise
                self._log_not_understood(each, error)
                not_understood.append(each.member_id)
                continue
            candidates.append(candidate)
            members[candidate.node.node_id] = MemberIdentity(
                member_id=each.member_id, group_instance_id=each.group_instance_id, process=candidate.process
            )
        return msgspec.structs.replace(
            self._decide(candidates),
            members=members,
            not_understood=tuple(not_understood),
            ended=seen_by_all(candidates),
            upstream=self._upstream,
        )

    def _log_not_understood(self, member: Any, error: NotUnderstood) -> None:  # noqa: ANN401 -- of a JoinGroupResponse
        if self._throttle.due(member.member_id) is not None:
            log.warning(
                "ignoring ownership-group member with unreadable metadata",
                group_id=self._who.group_id,
                member=member.member_id,
                instance=member.group_instance_id,
                error=str(error),
                way_out=_way_out(error),
            )

    async def _join(self) -> Any:  # noqa: ANN401 -- JoinGroupResponse, or None: try again
        self._joins += 1
        metadata = encode(self._candidate(self._joins))
        request = join(
            self._who,
            self.member_id,
            metadata=metadata,
            session_timeout_ms=self._session_timeout_ms,
            reason="the processes of an event log share its partitions",
        )
        # Upstream waits for the others as long as a session, and before that for group.initial.rebalance.delay.ms.
        error, answer = await self._ask(request, lane="join", timeout_ms=3 * self._session_timeout_ms)
        if error is ErrorCode.member_id_required or error is ErrorCode.none:
            self.member_id = answer.member_id
        return answer if self._goes_on(error, "JoinGroup") else None

    async def _heartbeats(self, generation_id: int, *, is_in: bool = True) -> None:
        """Send heartbeats until the group rebalances, or this process wants to rejoin. `is_in`: it is assigned."""
        while not self._is_to_join_again:
            self._woken.clear()
            pause_s = self._pause_s
            with suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await self._woken.wait()
                continue
            self._pause_s = min(2 * pause_s, self._interval_s)
            try:
                error, _ = await self._ask(heartbeat(self._who, self.member_id, generation_id), lane="heartbeat")
            except TryAgain as failed:
                self._failed(str(failed))
                continue
            if not self._goes_on(error, "Heartbeat"):
                return
            if is_in:
                self._is_in()

    async def _ask(self, asked: GroupRequest, *, lane: str, timeout_ms: int | None = None) -> tuple[ErrorCode, Any]:
        answer = await self._link.ask_coordinator(
            self._who.group_id,
            asked.request,
            asked.response,
            error_of=asked.error_of,
            lane=lane,
            timeout_ms=timeout_ms,
            retry_ms=0,
        )
        return asked.error_of(answer), answer

    def _goes_on(self, error: ErrorCode, what: str) -> bool:
        """Return whether the request succeeded; if not, rejoin. Raises TryAgain and LogMismatch."""
        match error:
            case ErrorCode.none:
                return True
            case ErrorCode.unknown_member_id:
                self.member_id = ""  # the session had expired
                return False
            case ErrorCode.member_id_required | ErrorCode.rebalance_in_progress | ErrorCode.illegal_generation:
                return False
            case ErrorCode.fenced_instance_id:
                raise NodeIdTaken(
                    f"another process with the node id of this one has joined consumer group {self._who.group_id} "
                    "(FENCED_INSTANCE_ID): give each process of a log its own --node-id"
                )
            case ErrorCode.inconsistent_group_protocol:
                raise LogMismatch(
                    f"a foreign client is in consumer group {self._who.group_id}, which is only for the processes "
                    f"of this log; {DESCRIBE_HINT}"
                )
            case ErrorCode.invalid_session_timeout:
                raise LogMismatch(
                    f"the brokers do not allow a session of {self._session_timeout_ms} ms "
                    "(group.min.session.timeout.ms, group.max.session.timeout.ms): change "
                    "--owner-session-timeout-ms"
                )
        if error.retriable:
            raise TryAgain(f"{what}: {error.name.upper()}")
        raise UpstreamRefused(f"{what}: {error.name.upper()}", error)

    @property
    def _lacks_read(self) -> str:
        return (
            f"Muster's principal at the event log lacks the ACL Allow READ on group {self._who.group_id}"
            " (GROUP_AUTHORIZATION_FAILED): kafka-acls.sh --add --allow-principal User:NAME --operation READ --group"
            f" {self._who.group_id}"
        )

    def _failed(self, trouble: str) -> None:
        self.trouble = trouble
        suppressed = self._losses.lost(self._who.group_id)
        if suppressed is not None:
            log.warning(
                CANNOT_REJOIN if self._has_taken_part else CANNOT_JOIN,
                group_id=self._who.group_id,
                error=trouble,
                others_since=suppressed,
            )

    def _is_in(self) -> None:
        self.trouble = None
        if self._losses.back(self._who.group_id):
            log.info("in the ownership group now", group_id=self._who.group_id)


def _way_out(error: NotUnderstood) -> str:
    if isinstance(error, AnotherLevel):
        return "end the deployment that was left half done: processes of a log need versions that know each other"
    if isinstance(error, AnotherUpstream):
        return f"check the --upstream and --log of both; {DESCRIBE_HINT}"
    return f"it is not a process of this log: stop it, or give it another group.id; {DESCRIBE_HINT}"


def _what_then(removal: ErrorCode) -> str:
    match removal:
        case ErrorCode.none:
            return "removed from the ownership group"
        case ErrorCode.unknown_member_id:
            return "it was no longer in the ownership group"
        case ErrorCode.fenced_instance_id:
            return "it was restarted, or another process has its node id: that one stays in the ownership group"
    return f"missed when its session ends: {removal.name.upper()}"
