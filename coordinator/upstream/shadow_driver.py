"""Sends a shadow's requests, one after another, until none is left.

`shadow.py` decides which request is next; this module handles the lanes, limits, pauses and the session timeout.

Upstream may park a join without a member id for group.initial.rebalance.delay.ms, and answers no later request on that
connection in the meantime. So each of these joins has a lane (a connection) to itself, and their number is limited. All
other requests are answered at once and share a few lanes. A failed request is retried while it is wanted, with growing
pauses; what is wanted may change at any time, and the last change counts.

If a join is refused for its protocol (23), another member is in the group, and the group is probed. The shadow of an
older version is removed from a group that was taken over from a previous process, since our own log shows that it was
ours.
"""

import asyncio
import contextlib
import heapq
import random
from collections.abc import AsyncIterator, Hashable
from typing import Any, Final
from zlib import crc32

import structlog
from kio.schema.errors import ErrorCode

from muster.coordinator.upstream.errors import UpstreamRefused
from muster.coordinator.upstream.group_probe import ForeignShadow, KeptUpstream, probe_group
from muster.coordinator.upstream.retakes import Retakes
from muster.coordinator.upstream.shadow import (
    UNNAMED,
    Action,
    CommitIdentity,
    Join,
    Leave,
    Shadow,
    ShadowHeartbeat,
    ShadowName,
    ShadowRefused,
    ShadowState,
    Sync,
    next_action,
    on_answer_lost,
    on_error,
    on_joined,
    on_left,
    on_synced,
    reason_of,
    shadow_request,
)
from muster.coordinator.upstream.upstream_link import UpstreamLink
from muster.events.ids import GroupId
from muster.events.kafka.connections import ignore
from muster.events.kafka.errors import AnswerLost, TryAgain

log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)

PARKED_JOINS_MAX: Final = 256
REQUESTS_MAX: Final = 256
HEARTBEATS_MAX: Final = 32
REQUEST_LANES: Final = 8
PARKED_TIMEOUT_MS: Final = 30_000
"""A join that is parked for longer is sent again; the new one replaces it."""
SESSION_MIN_MS: Final = 60_000
PAUSE_MAX_S: Final = 2.0
WARN_AFTER: Final = 5
WARN_INTERVAL_S: Final = 10.0
_PAUSE_S: Final = 0.02
_DOUBLINGS_MAX: Final = 10
"""Limit of the exponent: an outage may last for thousands of attempts, and 2**1024 overflows a float."""

Answer = tuple[ErrorCode, Any]


class ShadowHandle:
    """One group's shadow, its tasks, and the callers that wait for it to change.

    The driver records the results of its requests (`is_retake`, `is_join_sent`, `last_error`) and clears
    `is_heartbeat_due`; `Shadows` sets that and all other fields. Both replace `shadow` with one derived from the
    current one, without an await in between: the driver after responses, `Shadows` when something else is wanted.
    """

    def __init__(self, group_id: GroupId, shadow: Shadow, *, is_retake: bool = False) -> None:
        self.group_id = group_id
        self.shadow = shadow
        self.is_retake = is_retake
        """True if a previous process had this shadow, and the shadow has not rejoined yet."""
        self.is_waited_for = False
        """True if a commit waits for the shadow."""
        self.is_heartbeat_due = False
        self.is_join_sent = False
        self.withdrawals = 0
        """The number of callers that keep the shadow withdrawn."""
        self.is_being_taken = False
        """True if callers of `take`, which share one attempt, wait for the join; they report a refusal themselves."""
        self.last_error = ""
        """The last error, as text for log lines."""
        self.refusal: str | None = None
        """The reason, if upstream's refusal is final."""
        self.end_reason: str | None = None
        """The reason for which this handle was given up, if it was."""
        self.task: asyncio.Task[None] | None = None
        self.timer: asyncio.TimerHandle | None = None
        self._changed = asyncio.Event()

    @property
    def is_joining(self) -> bool:
        """True if the shadow should be in the group and has not joined yet."""
        return (
            self.end_reason is None
            and self.shadow.should_be_in
            and self.shadow.state in {ShadowState.OUT, ShadowState.UNSURE}
        )

    def update(self, shadow: Shadow) -> None:
        """Replace the shadow's state and wake up waiting callers."""
        self.shadow = shadow
        self.notify()

    def notify(self) -> None:
        """Wake up callers that wait for a change."""
        self._changed.set()
        self._changed = asyncio.Event()

    async def wait_change(self) -> None:
        """Wait for the next change."""
        await self._changed.wait()

    def on_join_sent(self) -> None:
        self.is_join_sent = True
        self.notify()


class ShadowDriver:
    """Sends shadows' requests. Lowers `session_timeout_ms` if upstream allows less."""

    def __init__(self, link: UpstreamLink, name: ShadowName, *, session_timeout_ms: int) -> None:
        self.session_timeout_ms = session_timeout_ms
        self._link = link
        self.name = name
        self._parked = _Lanes(PARKED_JOINS_MAX)
        self.retakes = Retakes()
        self._requests = asyncio.Semaphore(REQUESTS_MAX)
        self._heartbeats = asyncio.Semaphore(HEARTBEATS_MAX)
        self._warn_from_s = 0.0

    async def drive(self, handle: ShadowHandle) -> ShadowRefused | None:
        """Send requests until none is left; return the refusal if this group cannot have a shadow."""
        failures = 0  # in a row, of any requests: after a failure the next request may differ, so this is not a retry
        while action := next_action(handle.shadow, heartbeat_is_due=handle.is_heartbeat_due):
            asked_ms = self.session_timeout_ms
            try:
                error = await self._perform(handle, action)
                if error is ErrorCode.none:
                    failures = 0
                    continue
                outcome = await self._refused(handle, action, error, asked_ms)
            except TryAgain as lost:
                handle.last_error = str(lost)
                if isinstance(lost, AnswerLost):
                    handle.update(on_answer_lost(handle.shadow, action))
            except UpstreamRefused as refusal:
                if refusal.error is not None:
                    return ShadowRefused(reason_of(refusal.error))
                handle.last_error = str(refusal)  # credentials may be fixed while we run
            else:
                if isinstance(outcome, ShadowRefused):
                    return outcome
                handle.last_error = f"{type(action).__name__} was answered {error.name.upper()}"
                handle.update(outcome)
            failures += 1
            if failures == WARN_AFTER:
                self._warn(handle)
            await asyncio.sleep(_pause_s(failures) * random.uniform(0.5, 1.0))  # noqa: S311
        return None

    def _warn(self, handle: ShadowHandle) -> None:
        """Log one waiting shadow, at most every WARN_INTERVAL_S, since there may be thousands."""
        now_s = asyncio.get_running_loop().time()
        if now_s >= self._warn_from_s:
            self._warn_from_s = now_s + WARN_INTERVAL_S
            log.warning("shadows wait for the upstream cluster", for_example=handle.group_id, why=handle.last_error)

    async def _perform(self, handle: ShadowHandle, action: Action) -> ErrorCode:
        """Send the action's request and apply the response if it has no error. Raises as UpstreamLink does."""
        if action == Join(""):
            return await self._join_without_id(handle, action)
        is_heartbeat = isinstance(action, ShadowHeartbeat)
        lane = "heartbeats" if is_heartbeat else _request_lane(handle.group_id)
        async with self._heartbeats if is_heartbeat else self._requests:
            return _apply(handle, action, await self._ask(handle, action, lane=lane), self.name.group_instance_id)

    async def _join_without_id(self, handle: ShadowHandle, action: Action) -> ErrorCode:
        retaken = self.retakes.turn(handle, is_urgent=handle.is_waited_for)
        async with retaken if handle.is_retake else contextlib.nullcontext(), self._parked.one() as lane:
            if not handle.shadow.should_be_in:
                return ErrorCode.none  # no longer wanted after the wait for a lane
            asking = asyncio.create_task(
                self._ask(handle, action, lane=lane, timeout_ms=PARKED_TIMEOUT_MS), name=f"join-{handle.group_id}"
            )
            try:
                await self._watch(handle, asking)
                return _apply(handle, action, await asking, self.name.group_instance_id)
            finally:
                asking.cancel()

    async def _watch(self, handle: ShadowHandle, asking: asyncio.Task[Answer]) -> None:
        """Wait for the join's response; leave if the shadow is no longer wanted before it arrives."""
        while not asking.done() and handle.shadow.should_be_in:
            change = asyncio.create_task(handle.wait_change())
            try:
                await asyncio.wait({asking, change}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                change.cancel()
        if not asking.done():
            # Its member id is not yet known, so this leaves by instance id. If the leave arrives before the join, the
            # join's response has the member id for another leave.
            with contextlib.suppress(TryAgain, UpstreamRefused):
                await self._ask(handle, Leave(""), lane=_request_lane(handle.group_id))

    async def _ask(
        self,
        handle: ShadowHandle,
        action: Action,
        *,
        lane: Hashable,
        timeout_ms: int | None = None,
        name: ShadowName | None = None,
    ) -> Answer:
        asked = shadow_request(handle.group_id, action, name or self.name, session_timeout_ms=self.session_timeout_ms)
        answer = await self._link.ask_coordinator(
            handle.group_id,
            asked.request,
            asked.response,
            error_of=asked.error_of,
            lane=lane,
            timeout_ms=timeout_ms,
            retry_ms=0,
            sent=handle.on_join_sent if isinstance(action, Join) else ignore,
        )
        return asked.error_of(answer), answer

    async def _refused(
        self, handle: ShadowHandle, action: Action, error: ErrorCode, asked_ms: int
    ) -> Shadow | ShadowRefused:
        """Apply an error. Raises as UpstreamLink does."""
        shadow = handle.shadow
        if error is ErrorCode.inconsistent_group_protocol:
            return await self._upstream_members(handle) or handle.shadow
        if error is not ErrorCode.invalid_session_timeout or asked_ms // 2 < SESSION_MIN_MS:
            return on_error(shadow, action, error)
        # group.max.session.timeout.ms is shorter. Reading it would need another ACL, and this happens only once.
        self.session_timeout_ms = min(self.session_timeout_ms, asked_ms // 2)
        log.warning(
            "upstream refuses a shadow's session timeout, trying a shorter one", shorter_ms=self.session_timeout_ms
        )
        return shadow

    async def _upstream_members(self, handle: ShadowHandle) -> ShadowRefused | None:
        """Find out which member keeps our shadow out; None if there is no such member any more. Raises as UpstreamLink
        does.
        """
        verdict = await probe_group(self._link, handle.group_id, self.name)
        if isinstance(verdict, ForeignShadow) and verdict.is_unnamed and handle.is_retake:
            log.info("replacing the shadow of an earlier version", group_id=handle.group_id)
            await self._ask(handle, Leave(""), lane=_request_lane(handle.group_id), name=UNNAMED)
            return None
        return ShadowRefused(verdict.reason) if isinstance(verdict, KeptUpstream) else None


class _Lanes:
    """A pool of lanes, each for one request at a time; low numbers are reused, so that few connections stay open."""

    def __init__(self, count: int) -> None:
        self._free = list(range(count))
        self._any_free = asyncio.Semaphore(count)

    @contextlib.asynccontextmanager
    async def one(self) -> AsyncIterator[Hashable]:
        async with self._any_free:
            number = heapq.heappop(self._free)
            try:
                yield "parked", number
            finally:
                heapq.heappush(self._free, number)


def _pause_s(failures: int) -> float:
    return min(_PAUSE_S * (1 << min(failures, _DOUBLINGS_MAX)), PAUSE_MAX_S)


def _request_lane(group_id: GroupId) -> Hashable:
    return "requests", crc32(group_id.encode()) % REQUEST_LANES


def _apply(handle: ShadowHandle, action: Action, answered: Answer, instance_id: str) -> ErrorCode:
    error, answer = answered
    if error is not ErrorCode.none:
        return error
    match action:
        case Join():
            if answer.leader != answer.member_id or len(answer.members) > 1:
                return ErrorCode.inconsistent_group_protocol  # another member is in the group
            handle.is_retake = False
            identity = CommitIdentity(
                member_id=answer.member_id, generation_id=int(answer.generation_id), group_instance_id=instance_id
            )
            handle.update(on_joined(handle.shadow, identity))
        case Sync():
            handle.is_heartbeat_due = False
            handle.update(on_synced(handle.shadow))
        case ShadowHeartbeat():
            handle.is_heartbeat_due = False
        case Leave():
            handle.update(on_left(handle.shadow))
    return error
