"""Moves of groups with live members to and from upstream. See `move.py` for what a move waits for.

    release    Muster -> upstream. The rules have removed all members, in the same step that set the config
               `members.coordinator`, and nobody can join here any more. The shadow leaves; the next request of each
               member is answered UNKNOWN_MEMBER_ID (25).
    adopt      upstream -> Muster. The next request of each member that arrives here removes it upstream, and is
               answered 25. Its commits are relayed until then.

Meanwhile a JoinGroup of notified or new members is answered COORDINATOR_LOAD_IN_PROGRESS, after which every client
retries. After a release, joins are relayed; an adopted group is vacant upstream, so the next join takes it.

A release cannot be undone half-way, and needs no limit: each member is awaited within its own timeouts. An adoption can
be aborted: removed members join upstream again. A restart of this process ends a move. A released group stays
released; a shadow that a previous process left in it is removed before any join is relayed.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Protocol

import structlog
from cachetools import FIFOCache
from kio.schema.errors import ErrorCode
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception_type, retry_if_result, wait_fixed

from muster.coordinator.group.configs import COORDINATOR, MUSTER, UPSTREAM
from muster.coordinator.group.move_text import already_moving
from muster.coordinator.group.outcomes import GroupMove, MoveState, ReleasedMember
from muster.coordinator.sidecar.groups.adoption import Adoption, former_member, not_recent
from muster.coordinator.sidecar.groups.move import FormerMember, Move, Sender
from muster.coordinator.sidecar.groups.move_log import log_begin, log_end, log_waiting
from muster.coordinator.sidecar.groups.recent_members import RecentMembers
from muster.coordinator.sidecar.relay.intercept import ClientRequest
from muster.coordinator.tasks import BackgroundTasks
from muster.coordinator.upstream.shadows import ShadowName, ShadowUnavailable
from muster.coordinator.upstream.upstream_link import UpstreamLink
from muster.coordinator.upstream.upstream_members import NotAdoptable, remove_member, upstream_members
from muster.coordinator.wire import join_group, leave_group
from muster.events.ids import UNKNOWN_MEMBER_ID, GroupId, MemberId
from muster.events.kafka.errors import LinkError

log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)

CHECK_INTERVAL_S = 0.25
LIST_INTERVAL_MS = 1_000
TRY_AGAIN_S = 1.0
TAKE_TIMEOUT_MS = 30_000
"""How long the deletion of `members.coordinator` is retried after an adoption."""
REPORTS_KEPT = 1_000
_TAKEN = frozenset({ErrorCode.none, ErrorCode.group_id_not_found})
_GONE_UPSTREAM = frozenset({ErrorCode.none, ErrorCode.unknown_member_id, ErrorCode.group_id_not_found})


class LeavingShadows(Protocol):
    """The shadows of groups that are being released (see upstream/shadows.py)."""

    @property
    def name(self) -> ShadowName: ...

    def owns(self, group_id: GroupId) -> bool: ...

    def update_generation(self, group_id: GroupId, generation_id: int, is_wanted: bool) -> None: ...

    async def wait_gone(self, group_id: GroupId) -> None: ...

    async def remove_stray_shadows(self, is_ours: Callable[[GroupId], bool]) -> list[GroupId]: ...


class Moves:
    """All moves in progress. `is_released`: `members.coordinator` gives the group to upstream."""

    def __init__(
        self,
        link: UpstreamLink,
        shadows: LeavingShadows,
        *,
        is_released: Callable[[GroupId], bool],
        monotonic_ms: Callable[[], int],
        give_up: Callable[[Exception], None],
    ) -> None:
        self.is_released = is_released
        self.recent_members = RecentMembers(monotonic_ms)
        self._link = link
        self._shadows = shadows
        self._monotonic_ms = monotonic_ms
        self._moves: dict[GroupId, Move] = {}
        self._reports: FIFOCache[GroupId, GroupMove] = FIFOCache(REPORTS_KEPT)
        self._tasks = BackgroundTasks(give_up)
        self._unasked = 1
        """Above 0, a previous process may have left shadows in released groups, and upstream was not asked yet."""

    def expect_shadows(self) -> None:
        """Treat released groups as if they had a previous process's shadow, until `begin` has checked."""
        self._unasked += 1

    def begin(self) -> None:
        """Remove shadows that a previous process left in released groups; call it when the groups are loaded."""
        self._tasks.start(self._remove_stray_shadows(), "stray-shadows")

    def drop_groups(self, is_theirs: Callable[[GroupId], bool]) -> None:
        """Drop the moves of groups that another process owns now.

        A release is in the log, and continues there; an adoption is aborted, and its members join upstream again.
        """
        for group_id in [each for each in self._moves if is_theirs(each)]:
            del self._moves[group_id]

    async def close(self) -> None:
        """Stop all tasks. This ends the moves in progress."""
        await self._tasks.close()

    def is_moving(self, group_id: GroupId) -> bool:
        """Return whether requests of the group's members must be answered by `answer`."""
        return group_id in self._moves or (self._unasked > 0 and self.is_released(group_id))

    def report(self, group_id: GroupId) -> GroupMove | None:
        """Return the progress of the group's move, or the result of its last one."""
        move = self._moves.get(group_id)
        return self._reports.get(group_id) if move is None else move.report(MoveState.MOVING, self._monotonic_ms())

    # ---- requests ------------------------------------------------------------------------------------

    async def answer(self, request: ClientRequest) -> ErrorCode | None:
        """Return the error for a membership request of a moving group; None to relay it."""
        group_id, key = request.body.group_id, request.context.api_key
        move = self._moves.get(group_id)
        if move is None:
            return ErrorCode.coordinator_load_in_progress if key == join_group.API.key else None
        if key == leave_group.API.key:
            return _leave(move, request)
        sender = _sender(request)
        if key == join_group.API.key and sender.member_id not in move.members:
            return await self._rejoin(group_id, move, sender)
        return await self._notify(group_id, move, sender)

    def answer_commit(self, request: ClientRequest) -> ErrorCode | None:
        """Return the error for a commit in a moving group; None to relay it."""
        move = self._moves.get(request.body.group_id)
        if move is None or not move.is_release:
            return None
        move.mark_notified(_sender(request), self._monotonic_ms())
        return ErrorCode.unknown_member_id

    def note_unknown_member(self, request: ClientRequest) -> None:
        """Mark the sender as notified: the rules have answered it UNKNOWN_MEMBER_ID."""
        move = self._moves.get(request.body.group_id)
        if move is not None:
            move.mark_notified(_sender(request), self._monotonic_ms())

    async def _notify(self, group_id: GroupId, move: Move, sender: Sender) -> ErrorCode:
        if not move.is_release and sender.member_id:  # librdkafka sends one more heartbeat without a member id
            error = await self._remove(group_id, move, sender)
            if error is not ErrorCode.none:
                return error
            move.add(former_member(sender))
        move.mark_notified(sender, self._monotonic_ms())
        return ErrorCode.unknown_member_id

    async def _rejoin(self, group_id: GroupId, move: Move, sender: Sender) -> ErrorCode:
        before = move.predecessor(sender.group_instance_id)
        if not move.is_release and before is not None and not before.is_notified:
            # Its process was restarted, so the former member will send no more requests.
            error = await self._remove(group_id, move, before)
            if error is not ErrorCode.none:
                return error
        move.mark_back(sender)
        return ErrorCode.coordinator_load_in_progress

    async def _remove(self, group_id: GroupId, move: Move, member: Sender | FormerMember) -> ErrorCode:
        """Remove the member upstream; return NONE even if it was not there."""
        move.in_removal.add(member.member_id)
        try:
            error = await remove_member(self._link, group_id, member.member_id, member.group_instance_id)
        except LinkError as failed:
            log.warning("could not remove a member upstream", group_id=group_id, error=str(failed))
            return ErrorCode.coordinator_not_available
        finally:
            move.in_removal.discard(member.member_id)
        return ErrorCode.none if error in _GONE_UPSTREAM else error

    # ---- release -------------------------------------------------------------------------------------

    def release(self, group_id: GroupId, members: Iterable[ReleasedMember]) -> None:
        """Begin the move to upstream: the rules have removed these members."""
        now_ms = self._monotonic_ms()
        formers = [
            FormerMember(
                member_id=each.member_id,
                group_instance_id=each.group_instance_id,
                client_id=each.client_id,
                client_host=each.client_host,
                session_timeout_ms=each.session_timeout_ms,
                rebalance_timeout_ms=each.rebalance_timeout_ms,
                was_parked=each.was_parked,
            )
            for each in members
        ]
        move = self._moves[group_id] = Move(UPSTREAM, formers, now_ms=now_ms)
        log_begin(group_id, move)
        self._tasks.start(self._release(group_id, move), f"release-{group_id}")

    async def _release(self, group_id: GroupId, move: Move) -> None:
        while self._is_under_way(group_id, move) and move.waits_for(now_ms := self._monotonic_ms()):
            move.note_connections(now_ms)
            log_waiting(group_id, move, now_ms)
            await asyncio.sleep(CHECK_INTERVAL_S)
        if self._is_under_way(group_id, move):
            await self._until_gone(group_id)
            self._end(group_id, move, MoveState.DONE)

    async def _until_gone(self, group_id: GroupId) -> None:
        async def leave() -> None:
            self._shadows.update_generation(group_id, 0, is_wanted=False)  # a recent join may have wanted it
            await self._shadows.wait_gone(group_id)

        await _while_unavailable("a released group waits for its shadow to leave", group_id=group_id)(leave)

    async def _remove_stray_shadows(self) -> None:
        attempts = _while_unavailable("released groups wait")
        strays: list[GroupId] = await attempts(self._shadows.remove_stray_shadows, self.is_released)
        for group_id in strays:
            await self._until_gone(group_id)
        self._unasked -= 1

    # ---- adoption ------------------------------------------------------------------------------------

    async def adopt(
        self, group_id: GroupId, *, timeout_ms: int, only_try: bool, take: Callable[[], Awaitable[ErrorCode]]
    ) -> str | None:
        """Begin to adopt the group; return the reason if that is not possible. `take` deletes members.coordinator."""
        if self._shadows.owns(group_id) and not self.is_moving(group_id):
            return None
        if self.is_moving(group_id):
            return already_moving(group_id)
        try:
            members = await upstream_members(self._link, group_id, self._shadows.name)
        except NotAdoptable as error:
            return str(error)
        except LinkError as error:
            return f"upstream does not list its members: {error}"
        now_ms = self._monotonic_ms()
        absent = [each for each in members if not self.recent_members.is_recent(group_id, each.member_id, now_ms)]
        if absent:
            return not_recent(absent, len(members))
        if only_try:
            return None
        if self.is_moving(group_id):
            return already_moving(group_id)
        move = Move(MUSTER, map(former_member, members), now_ms=now_ms, deadline_ms=now_ms + timeout_ms)
        self._moves[group_id] = move
        log_begin(group_id, move)
        self._tasks.start(self._adopt(group_id, move, take), f"adopt-{group_id}")
        return None

    async def _adopt(self, group_id: GroupId, move: Move, take: Callable[[], Awaitable[ErrorCode]]) -> None:
        upstream = Adoption(self._link, self._shadows.name, group_id, move)
        listed_ms = 0
        assert move.deadline_ms is not None
        while (now_ms := self._monotonic_ms()) < move.deadline_ms:
            if not self._is_under_way(group_id, move):
                return
            move.note_connections(now_ms)
            if not move.waits_for(now_ms) or now_ms - listed_ms >= LIST_INTERVAL_MS:
                listed_ms = now_ms
                await upstream.list_members(now_ms, within_ms=move.deadline_ms - now_ms)
            if not upstream.still_upstream and not move.waits_for(now_ms):
                break
            log_waiting(group_id, move, now_ms)
            await asyncio.sleep(CHECK_INTERVAL_S)
        if upstream.still_upstream:
            self._end(group_id, move, MoveState.GIVEN_UP, upstream.reason(now_ms))
            return
        error = await self._take(take)
        if error is not ErrorCode.none:
            self._end(group_id, move, MoveState.GIVEN_UP, f"{COORDINATOR} was not restored: {error.name.upper()}")
            return
        self._end(group_id, move, MoveState.DONE)

    async def _take(self, take: Callable[[], Awaitable[ErrorCode]]) -> ErrorCode:
        """Retry `take` until it succeeds: it fails while the group's partition is not served."""
        until_ms = self._monotonic_ms() + TAKE_TIMEOUT_MS
        attempts = AsyncRetrying(
            retry=retry_if_result(lambda error: error not in _TAKEN),
            wait=wait_fixed(CHECK_INTERVAL_S),
            stop=lambda _: self._monotonic_ms() >= until_ms,
            retry_error_callback=lambda last: last.outcome and last.outcome.result(),
        )

        async def attempt() -> ErrorCode:
            return await take()

        error: ErrorCode = await attempts(attempt)
        return ErrorCode.none if error in _TAKEN else error

    def _is_under_way(self, group_id: GroupId, move: Move) -> bool:
        """Return whether the move is still in progress in this process."""
        return self._moves.get(group_id) is move

    # ---- both ----------------------------------------------------------------------------------------

    def _end(self, group_id: GroupId, move: Move, state: MoveState, reason: str | None = None) -> None:
        if self._moves.get(group_id) is move:
            del self._moves[group_id]
        report = self._reports[group_id] = move.report(state, self._monotonic_ms(), reason)
        log_end(group_id, report)


def _while_unavailable(event: str, **about: str) -> AsyncRetrying:
    """Return a retry loop for while upstream is unavailable; each failed attempt logs `event`."""

    def report(state: RetryCallState) -> None:
        error = state.outcome.exception() if state.outcome else None
        log.warning(event, error=str(error), **about)

    return AsyncRetrying(
        retry=retry_if_exception_type(ShadowUnavailable), wait=wait_fixed(TRY_AGAIN_S), before_sleep=report
    )


def _leave(move: Move, request: ClientRequest) -> ErrorCode | None:
    """Note a LeaveGroup; during an adoption, upstream handles it."""
    for each in getattr(request.body, "members", None) or (request.body,):
        move.mark_left(each.member_id)
    return ErrorCode.unknown_member_id if move.is_release else None


def _sender(request: ClientRequest) -> Sender:
    body, context = request.body, request.context
    return Sender(
        connection=request.client,
        client_id=context.client_id,
        client_host=context.client_host,
        member_id=MemberId(getattr(body, "member_id", UNKNOWN_MEMBER_ID)),
        group_instance_id=getattr(body, "group_instance_id", None),
    )
