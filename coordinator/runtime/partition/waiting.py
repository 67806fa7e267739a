"""The unanswered requests of a partition, and the callbacks for their responses.

Each request gets one response. Requests that will never be answered are forgotten.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Final

import msgspec
import structlog
from kio.schema.errors import ErrorCode

from muster.coordinator.group.commands import (
    AnyCommand,
    AnyRequest,
    AuthorizeCommit,
    CommitOffsets,
    DeleteOffsets,
    DescribeGroup,
    DescribeGroupConfig,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    Request,
    SyncGroup,
)
from muster.coordinator.group.error_replies import error_replies
from muster.coordinator.group.outcomes import HeartbeatOutcome, Outcome, Reply, Superseded
from muster.coordinator.group.soft_state import SoftState
from muster.coordinator.load.answer_memory import HELD_BYTES_MAX
from muster.coordinator.not_served import retry_reply
from muster.coordinator.observability.group_metrics import in_slices
from muster.coordinator.runtime.partition.answer_lease import HELD_MS, AnswerLease
from muster.coordinator.service import ReplyTo
from muster.events.ids import GroupId, MemberId

LEASELESS: Final = frozenset({ErrorCode.not_coordinator, ErrorCode.coordinator_not_available})
"""Errors that reveal nothing about the group, so they may be sent without a lease."""

COMMAND_BYTES: Final = 2_048
ENTRY_BYTES: Final = 256
"""The approximate memory of a command without its content, and of each of its entries."""

QUERIES: Final = (Heartbeat, AuthorizeCommit, DescribeGroup, DescribeGroupConfig)
"""Requests that change nothing in the event log."""

log = structlog.get_logger(__name__)

ParkingKey = tuple[type[JoinGroup | SyncGroup], GroupId, MemberId]
"""The key of a parked request: a group parks one join and one sync of each member."""


class Waiting(msgspec.Struct, frozen=True, eq=False):
    """An unanswered request, and the callback for its response."""

    command: AnyRequest
    reply_to: ReplyTo


class RequestBacklog:
    """The bytes of the requests of all partitions that are not decided, or whose decision is not durable yet.

    Usually there are few. While the event log stalls there may be very many, because clients can send a request,
    disconnect, which ends the limits of their connections (net/memory.py), and connect again.
    """

    def __init__(self, bytes_max: int = HELD_BYTES_MAX // 2) -> None:
        self.bytes = 0
        self._bytes_max = bytes_max
        self._is_logged = False

    def add(self, size: int) -> None:
        self.bytes += size

    def remove(self, size: int) -> None:
        self.bytes -= size
        if 2 * self.bytes < self._bytes_max:
            self._is_logged = False

    def refusal(self, command: AnyRequest, *, is_group_busy: bool) -> Reply | None:
        """Return the response that makes the client retry if there is no room for the request; otherwise None.

        Queries of a group with no other work are answered immediately, so they need no room.
        """
        if self.bytes < self._bytes_max or (isinstance(command, QUERIES) and not is_group_busy):
            return None
        if not self._is_logged:
            self._is_logged = True
            log.warning(
                "refusing requests with a retriable error: those that wait for the event log exceed half of "
                "--queued-max-request-bytes",
                limit_bytes=self._bytes_max,
            )
        is_heartbeat = isinstance(command, Heartbeat)
        (reply,) = error_replies(command, ErrorCode.coordinator_not_available) if is_heartbeat else retry_reply(command)
        return reply


class WaitingRequests:
    """Maps each unanswered request to the callback that sends its response."""

    def __init__(self, backlog: RequestBacklog, lease: AnswerLease | None = None) -> None:
        self._backlog = backlog
        self._undecided: dict[int, int] = {}
        """The bytes of each request that is in the backlog."""
        self._lease = lease
        self._waiting: dict[int, Waiting] = {}
        self._parked: dict[ParkingKey, int] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def parked(self) -> tuple[int, int, tuple[int, GroupId] | None]:
        """Return the number of joins and of syncs parked in a rebalance, and the arrival (monotonic) and group of the
        oldest.

        Thread-safe.
        """
        parked = list(self._parked.items())
        arrived = [
            (waiting.command.caller.arrived_ms, group_id)
            for (_, group_id, _), request_id in in_slices(parked)
            if (waiting := self._waiting.get(request_id)) is not None
        ]
        joins = sum(kind is JoinGroup for (kind, _, _), _ in parked)
        return joins, len(parked) - joins, min(arrived, default=None)

    def add(self, command: AnyRequest, reply_to: ReplyTo) -> None:
        """Keep the request until it is answered, and in the backlog until it is decided."""
        self._waiting[command.caller.request_id] = Waiting(command, reply_to)
        self._undecided[command.caller.request_id] = size = _size(command)
        self._backlog.add(size)

    def _leave_backlog(self, request_id: int) -> None:
        self._backlog.remove(self._undecided.pop(request_id, 0))

    def answer_without_lease(self, heartbeat: Heartbeat) -> None:
        """If the lease ends before the append that a heartbeat waits for, answer the heartbeat with an error.

        Its sender then looks for the coordinator, which may be another process. The session is still refreshed, from
        the heartbeat's arrival, if the append succeeds after all.
        """
        if self._lease is not None:
            asyncio.get_running_loop().call_later(HELD_MS / 1000, self._still_waits, heartbeat.caller.request_id)

    def _still_waits(self, request_id: int) -> None:
        waiting = self._waiting.get(request_id)
        if waiting is None or self._lease is None:
            return
        if self._lease.covers:
            asyncio.get_running_loop().call_later(self._lease.left_ms / 1000, self._still_waits, request_id)
            return
        del self._waiting[request_id]
        _deliver_if(waiting, HeartbeatOutcome(error=ErrorCode.none), is_covered=False)

    def asked_by(self, reply: Reply) -> tuple[MemberId, int] | None:
        """The member that a reply is for, and when its request arrived; None if the request names no member or was
        superseded.
        """
        waiting = self._waiting.get(reply.request_id)
        if waiting is None:
            return None
        member_id = getattr(reply.outcome, "member_id", None) or getattr(waiting.command, "member_id", None)
        return (member_id, waiting.command.caller.arrived_ms) if member_id else None

    def decided(self, command: AnyCommand, replies: Sequence[Reply], soft: SoftState) -> None:
        """Note that a command is decided: `replies` are about to be released; a request without a reply is parked.

        `soft`: the soft state after the decision. The rules never answer a parked request that was sent again (J13,
        SG17), so its sender gets Superseded here, even if the later request is not answered immediately.
        """
        if isinstance(command, Request):
            self._leave_backlog(command.caller.request_id)
        for reply in replies:
            self._unpark(reply.request_id)
        if not isinstance(command, JoinGroup | SyncGroup):
            return
        parking, request_id = _parking(command), command.caller.request_id
        is_answered = any(reply.request_id == request_id for reply in replies)
        earlier = self._parked.get(parking)
        if earlier is not None and not (is_answered and _is_parked(soft, parking, earlier)):
            del self._parked[parking]
            superseded = self._waiting.pop(earlier, None)
            if superseded is not None:
                deliver(superseded, Superseded())
        if is_answered:
            return
        self._parked[parking] = request_id
        waiting = self._waiting.get(request_id)
        if waiting is not None:  # its protocols or assignments are in the group now, or dropped
            self._waiting[request_id] = Waiting(_without_content(command), waiting.reply_to)

    def release(self, reply: Reply) -> None:
        """Answer a request."""
        self._leave_backlog(reply.request_id)
        self._unpark(reply.request_id)
        waiting = self._waiting.pop(reply.request_id, None)
        if waiting is None:
            return
        if self._lease is None or getattr(reply.outcome, "error", None) in LEASELESS:
            deliver(waiting, reply.outcome)
        else:
            self._lease.when_covered(partial(_deliver_if, waiting, reply.outcome))

    def release_each(self, replies: Iterable[Reply]) -> None:
        """Answer several requests."""
        for reply in replies:
            self.release(reply)

    def _unpark(self, request_id: int) -> None:
        waiting = self._waiting.get(request_id)
        if waiting is not None and isinstance(waiting.command, JoinGroup | SyncGroup):
            parking = _parking(waiting.command)
            if self._parked.get(parking) == request_id:
                del self._parked[parking]

    def release_all(self, answers: Callable[[AnyRequest], Iterable[Reply]]) -> None:
        """Answer every request with the replies that `answers` returns for it."""
        for waiting in list(self._waiting.values()):
            self.release_each(answers(waiting.command))
        for request_id in list(self._undecided):  # heartbeats that were answered without a lease
            self._leave_backlog(request_id)


def _size(command: AnyRequest) -> int:
    """Estimate the bytes that a waiting command takes."""
    match command:
        case (
            JoinGroup(protocols=entries)
            | SyncGroup(assignments=entries)
            | LeaveGroup(members=entries)
            | CommitOffsets(offsets=entries)
            | DeleteOffsets(partitions=entries)
        ):
            return COMMAND_BYTES + command.caller.request_bytes + len(entries) * ENTRY_BYTES
        case _:  # one of perhaps many groups in the request
            return COMMAND_BYTES


def _deliver_if(waiting: Waiting, outcome: Outcome, is_covered: bool) -> None:
    if not is_covered:
        (reply,) = error_replies(waiting.command, ErrorCode.coordinator_not_available)
        outcome = reply.outcome
    deliver(waiting, outcome)


def deliver(waiting: Waiting, outcome: Outcome) -> None:
    """Deliver an outcome. A bug in encoding an outcome only affects that client."""
    try:
        waiting.reply_to(outcome)
    except Exception:
        log.exception("could not send a response", command=type(waiting.command).__name__)


def _without_content(command: JoinGroup | SyncGroup) -> JoinGroup | SyncGroup:
    if isinstance(command, JoinGroup):
        return msgspec.structs.replace(command, protocols=())
    return msgspec.structs.replace(command, assignments=())


def _is_parked(soft: SoftState, parking: ParkingKey, request_id: int) -> bool:
    """Return whether the rules still have the request parked."""
    kind, _, member_id = parking
    held = soft.held_joins.get(member_id)
    if kind is SyncGroup:
        caller = soft.parked_syncs.get(member_id)
    else:
        caller = soft.parked_joins.get(member_id) if held is None else held.join.caller
    return caller is not None and caller.request_id == request_id


def _parking(command: JoinGroup | SyncGroup) -> ParkingKey:
    if isinstance(command, JoinGroup):
        return JoinGroup, command.group_id, command.member_id or command.proposed_member_id
    return SyncGroup, command.group_id, command.member_id
