"""All shadows: takes groups, bumps their generations upstream, lets shadows leave, and retakes them after a restart.

Keeps track of which groups have a shadow, who waits for it, and when its heartbeat is due. `shadow.py` decides which
request is next and which refusals are for good; `shadow_driver.py` sends the requests.

A shadow has a task only while there is a request to send; the driver then runs until none is left. If upstream refuses
a group's shadow for good, the group is forgotten and `lost` is called.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Final
from zlib import crc32

from muster.coordinator.tasks import on_failure
from muster.coordinator.upstream.group_probe import KeptUpstream, Vacant, groups_with_shadow, probe_group
from muster.coordinator.upstream.shadow import (
    NAME_NOT_KNOWN_YET,
    UNKNOWN_GENERATION,
    CommitIdentity,
    Shadow,
    ShadowName,
    ShadowRefused,
    ShadowState,
    commit_identity,
    is_bumped,
    require_bump,
    want,
    withdraw,
)
from muster.coordinator.upstream.shadow_census import ShadowCensus, census_of, log_left
from muster.coordinator.upstream.shadow_driver import ShadowDriver, ShadowHandle
from muster.coordinator.upstream.upstream_link import UpstreamLink
from muster.events.ids import GroupId
from muster.events.kafka.errors import LinkError

__all__ = ["CommitIdentity", "OnLost", "ShadowName", "ShadowUnavailable", "Shadows"]

OnLost = Callable[[GroupId, str], None]
"""Called with the reason when upstream refuses a group's shadow for good, since upstream coordinates the group."""

SESSION_TIMEOUT_MS: Final = 1_800_000
"""Kafka's default for group.max.session.timeout.ms."""
HEARTBEAT_INTERVAL_MS: Final = 180_000
WAIT_TIMEOUT_MS: Final = 20_000


class ShadowUnavailable(Exception):
    """Upstream did not answer in time, or the group has no shadow."""


class Shadows:
    """All shadows of this process, and the tasks that send their requests.

    `name` distinguishes our shadows from those of other services. It is known once the event log is open.

    `give_up` is called on an internal error in a background task.
    """

    def __init__(
        self,
        link: UpstreamLink,
        name: ShadowName = NAME_NOT_KNOWN_YET,
        *,
        lost: OnLost,
        give_up: Callable[[Exception], None],
        session_timeout_ms: int = SESSION_TIMEOUT_MS,
        heartbeat_interval_ms: int = HEARTBEAT_INTERVAL_MS,
        wait_timeout_ms: int = WAIT_TIMEOUT_MS,
    ) -> None:
        self.name = name
        self._link = link
        self._lost = lost
        self._give_up = give_up
        self._driver = ShadowDriver(link, name, session_timeout_ms=session_timeout_ms)
        self._heartbeat_interval_ms = heartbeat_interval_ms
        self._wait_timeout_ms = wait_timeout_ms
        self._handles: dict[GroupId, ShadowHandle] = {}
        self._taking: dict[GroupId, asyncio.Task[KeptUpstream | None]] = {}
        self._refused: set[GroupId] = set()
        """Groups lost to upstream that still have members here. If retaken, two processes would fight over them."""
        self._is_closed = False

    def set_name(self, name: ShadowName) -> None:
        """Set the name, before any group gets a shadow."""
        self.name = self._driver.name = name

    async def close(self) -> None:
        """Stop all tasks. The shadows stay upstream, where a restart retakes them."""
        self._is_closed = True
        handles, self._handles = list(self._handles.values()), {}
        log_left(handles, for_at_most_ms=self._driver.session_timeout_ms)
        tasks: list[asyncio.Task[None] | asyncio.Task[KeptUpstream | None]] = list(self._taking.values())
        for each in handles:
            _stop_timer(each)
            each.end_reason = "Muster is stopping"
            each.notify()
            if each.task is not None:
                tasks.append(each.task)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def census(self) -> ShadowCensus:
        """Count the present and missing shadows. Thread-safe."""
        return census_of(list(self._handles.values()))

    # ---- which groups are ours ---------------------------------------------------------------------------

    def owns(self, group_id: GroupId) -> bool:
        """Return whether Muster coordinates the group: its shadow is in the group, or joining."""
        handle = self._handles.get(group_id)
        return handle is not None and handle.shadow.wanted is not None

    def may_have_shadow(self, group_id: GroupId) -> bool:
        """Return whether upstream may have our shadow in the group: it is in the group, joining or leaving."""
        return group_id in self._handles

    def group_ids(self) -> list[GroupId]:
        """Return the groups that may have our shadow upstream."""
        return list(self._handles)

    def drop_groups(self, is_theirs: Callable[[GroupId], bool]) -> None:
        """Abandon the shadows of groups that another process owns now. They stay upstream, for that process."""
        for group_id, taking in list(self._taking.items()):
            if is_theirs(group_id):
                taking.cancel()
        for handle in [each for each in self._handles.values() if is_theirs(each.group_id)]:
            _stop_timer(handle)
            if handle.task is not None:
                handle.task.cancel()
            self._end(handle, "another process of this Muster owns the group now")
        self._refused -= {each for each in self._refused if is_theirs(each)}

    def is_in(self, group_id: GroupId) -> bool:
        """Return whether upstream lists the group because of our shadow, which may be about to leave."""
        handle = self._handles.get(group_id)
        return handle is not None and handle.shadow.state in {ShadowState.JOINED, ShadowState.IN}

    async def probe(self, group_id: GroupId) -> KeptUpstream | None:
        """Ask upstream whether the group is vacant; if not, return why. Raises ShadowUnavailable."""
        verdict = await self._probe(group_id)
        return verdict if isinstance(verdict, KeptUpstream) else None

    async def _probe(self, group_id: GroupId) -> Vacant | KeptUpstream:
        try:
            return await probe_group(self._link, group_id, self.name)
        except LinkError as error:
            raise ShadowUnavailable(
                f"cannot determine whether group {group_id} has members upstream: {error}"
            ) from error

    def is_leaving(self, group_id: GroupId) -> bool:
        """Return whether our shadow is leaving."""
        return group_id in self._handles and not self.owns(group_id)

    async def take(self, group_id: GroupId) -> KeptUpstream | None:
        """Take the group: make its shadow join if the group is vacant upstream; if not, return why.

        Returns once the join was sent. Concurrent calls share one attempt. Raises ShadowUnavailable if the probe fails.
        """
        if self.owns(group_id):
            return None
        taking = self._taking.get(group_id)
        if taking is None:
            if self._is_closed:
                raise ShadowUnavailable("Muster is stopping")
            taking = self._taking[group_id] = asyncio.create_task(self._take(group_id), name=f"take-{group_id}")
            taking.add_done_callback(lambda done: self._on_taken(group_id, done))
        try:
            return await asyncio.shield(taking)
        except asyncio.CancelledError:
            if not taking.cancelled():
                raise  # the caller was cancelled
            raise ShadowUnavailable("Muster is stopping") from None

    def _on_taken(self, group_id: GroupId, taking: asyncio.Task[KeptUpstream | None]) -> None:
        del self._taking[group_id]
        error = None if taking.cancelled() else taking.exception()
        if isinstance(error, Exception) and not isinstance(error, ShadowUnavailable):
            self._give_up(error)

    async def _take(self, group_id: GroupId) -> KeptUpstream | None:
        if group_id not in self._handles:
            verdict = await self._probe(group_id)
            if isinstance(verdict, KeptUpstream):
                return verdict
            self._refused.discard(group_id)
            if group_id not in self._handles:  # unless it was retaken in between
                state = ShadowState.UNSURE if verdict.has_shadow else ShadowState.OUT
                self._handles[group_id] = ShadowHandle(group_id, Shadow(wanted=None, state=state))
        handle = self._handles[group_id]
        if handle.shadow.wanted is None:  # new, or just leaving
            self._change(handle, want(handle.shadow, UNKNOWN_GENERATION))
        handle.is_being_taken = True
        try:
            await self._until(handle, lambda: handle.is_join_sent)
        except ShadowUnavailable:
            if handle.refusal is not None:
                return KeptUpstream(handle.refusal)
            if handle.shadow.wanted == UNKNOWN_GENERATION:  # unless other members have joined since
                self._change(handle, want(handle.shadow, None))
            raise
        finally:
            handle.is_being_taken = False
        return None

    def retakes_held(self) -> contextlib.AbstractContextManager[None]:
        """Retake no shadow during the block, while partitions are being taken over; for a second at most."""
        return self._driver.retakes.held()

    # ---- our generations -----------------------------------------------------------------------------

    def update_generation(self, group_id: GroupId, generation_id: int, is_wanted: bool) -> None:
        """Set the group's generation, and whether it needs a shadow. Requests are sent in a task.

        If a group that needs a shadow has none, it is retaken from a previous process, a few at a time.
        """
        handle = self._handles.get(group_id)
        if not is_wanted:
            self._refused.discard(group_id)
            if handle is not None:
                self._change(handle, want(handle.shadow, None))
        elif handle is not None:
            self._change(handle, want(handle.shadow, generation_id))
        elif group_id not in self._refused and not self._is_closed:
            handle = self._handles[group_id] = ShadowHandle(
                group_id, Shadow(wanted=generation_id, state=ShadowState.UNSURE), is_retake=True
            )
            self._wake(handle)

    def bump_again(self, group_id: GroupId) -> None:
        """Bump the shadow again for the same generation of ours; until then it has no commit identity."""
        handle = self._handles.get(group_id)
        if handle is not None:
            self._change(handle, require_bump(handle.shadow))

    async def wait_bumped(self, group_id: GroupId, generation_id: int) -> None:
        """Wait until the shadow is bumped for this generation of ours, or a later one. Raises ShadowUnavailable."""
        handle = self._handles.get(group_id)
        if handle is None or handle.shadow.wanted is None:
            raise ShadowUnavailable(f"group {group_id} has no shadow upstream")
        handle.is_waited_for = True
        self._driver.retakes.hurry(handle)
        await self._until(handle, lambda: is_bumped(handle.shadow, generation_id))

    def commit_identity(self, group_id: GroupId, generation_id: int) -> CommitIdentity | None:
        """Return the identity for commits of exactly this generation of ours; None until it is bumped for it."""
        handle = self._handles.get(group_id)
        return commit_identity(handle.shadow, generation_id) if handle is not None else None

    def heartbeat_soon(self, group_id: GroupId) -> None:
        """Send a heartbeat now, since a broker did not know the shadow's identity."""
        handle = self._handles.get(group_id)
        if handle is not None and handle.shadow.should_be_in:
            handle.is_heartbeat_due = True
            self._wake(handle)

    @contextlib.asynccontextmanager
    async def withdrawn(self, group_id: GroupId) -> AsyncIterator[None]:
        """Keep the shadow out of the group during the block; it joins again afterwards. Raises ShadowUnavailable.

        Its rejoin continues after the block, since upstream may park it. There is no commit identity until it has
        rejoined. A join in progress is awaited first: if a parked join were withdrawn, the broker would continue its
        initial rebalance until the delay is over, and return NON_EMPTY_GROUP until then.
        """
        handle = self._handles.get(group_id)
        if handle is not None:
            await self._until(handle, lambda: not handle.is_joining)
        if handle is None or handle.end_reason is not None:
            yield
            return
        handle.withdrawals += 1
        self._change(handle, withdraw(handle.shadow, is_withdrawn=True))
        try:
            await self._until(handle, lambda: handle.shadow.state is ShadowState.OUT and handle.task is None)
            yield
        finally:
            handle.withdrawals -= 1
            if not handle.withdrawals:
                self._change(handle, withdraw(handle.shadow, is_withdrawn=False))

    async def wait_gone(self, group_id: GroupId) -> None:
        """Wait until a shadow that is no longer wanted has left upstream. Raises ShadowUnavailable."""
        handle = self._handles.get(group_id)
        if handle is not None:
            await self._until(handle, lambda: handle.end_reason is not None)

    async def remove_stray_shadows(self, is_ours: Callable[[GroupId], bool]) -> list[GroupId]:
        """Remove shadows that a previous process left in groups of ours that need none now.

        Shadows of other services and of older versions stay: LeaveGroup names our instance id. Call it once all groups
        of ours have reported their generations, or their shadows would leave for a moment. Returns the groups of the
        removed shadows. Raises ShadowUnavailable if upstream does not list its groups.
        """
        try:
            groups = await groups_with_shadow(self._link)
        except LinkError as error:
            raise ShadowUnavailable(f"cannot determine which groups have a shadow upstream: {error}") from error
        strays = [each for each in groups if is_ours(each) and each not in self._handles and each not in self._refused]
        for group_id in strays:
            stray = self._handles[group_id] = ShadowHandle(group_id, Shadow(wanted=None, state=ShadowState.UNSURE))
            self._wake(stray)
        return strays

    # ---- background tasks ----------------------------------------------------------------------------

    def _change(self, handle: ShadowHandle, shadow: Shadow) -> None:
        if shadow != handle.shadow:
            handle.update(shadow)
        self._wake(handle)

    def _wake(self, handle: ShadowHandle) -> None:
        if handle.task is None and handle.end_reason is None:
            handle.task = asyncio.create_task(self._drive(handle), name=f"shadow-{handle.group_id}")
            handle.task.add_done_callback(on_failure(self._give_up))

    async def _drive(self, handle: ShadowHandle) -> None:
        _stop_timer(handle)
        refused = await self._driver.drive(handle)
        handle.task = None
        if refused is not None:
            self._refuse(handle, refused)
        elif handle.shadow.wanted is None and not handle.withdrawals:
            self._end(handle, "it has no members left")
        elif handle.shadow.should_be_in:
            every_ms = min(self._heartbeat_interval_ms, self._driver.session_timeout_ms // 5)
            after_s = every_ms / 1000 * _fraction(handle.group_id)
            handle.timer = asyncio.get_running_loop().call_later(after_s, self._beat, handle)
        handle.notify()

    def _beat(self, handle: ShadowHandle) -> None:
        if handle.shadow.wanted == UNKNOWN_GENERATION:  # taken for a join that failed
            self._change(handle, want(handle.shadow, None))
        else:
            handle.is_heartbeat_due = True
            self._wake(handle)

    def _refuse(self, handle: ShadowHandle, refused: ShadowRefused) -> None:
        handle.refusal = refused.reason
        self._end(handle, refused.reason)
        take_reports_it = handle.is_being_taken and handle.shadow.wanted == UNKNOWN_GENERATION
        if handle.shadow.wanted is not None and not take_reports_it:
            self._refused.add(handle.group_id)
            self._lost(handle.group_id, refused.reason)

    def _end(self, handle: ShadowHandle, reason: str) -> None:
        handle.end_reason = reason
        handle.notify()
        if self._handles.get(handle.group_id) is handle:
            del self._handles[handle.group_id]

    async def _until(self, handle: ShadowHandle, condition: Callable[[], bool]) -> None:
        try:
            async with asyncio.timeout(self._wait_timeout_ms / 1000):
                while not condition():
                    if handle.end_reason is not None:
                        raise ShadowUnavailable(f"group {handle.group_id} has no shadow upstream: {handle.end_reason}")
                    await handle.wait_change()
        except TimeoutError as error:
            why = handle.last_error or "upstream has not responded"
            raise ShadowUnavailable(
                f"the shadow of group {handle.group_id} is not ready after {self._wait_timeout_ms} ms: {why}"
            ) from error


def _fraction(group_id: GroupId) -> float:
    """Return 0.5 to 1, constant for each group, so that heartbeats of many groups are spread out."""
    return 0.5 + crc32(group_id.encode()) / 2**33


def _stop_timer(handle: ShadowHandle) -> None:
    if handle.timer is not None:
        handle.timer.cancel()
        handle.timer = None
