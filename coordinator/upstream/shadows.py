"""All our shadows upstream: taken, raised, left, retaken after a restart.

What belongs here: which groups have one, who waits for it, and when a heartbeat is due. What it must not know: what a
shadow sends and when it is refused for good (`shadow.py`), how it is sent (`shadow_driver.py`).

How it works: a group's shadow costs a task only while there is something to do for it; then its driver runs until
nothing is left. A group that upstream refuses for good is forgotten, and `lost` is told.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Final
from zlib import crc32

from muster.coordinator.tasks import on_failure
from muster.coordinator.upstream.group_probe import Theirs, shadowed_groups, whose_is
from muster.coordinator.upstream.link import UpstreamLink
from muster.coordinator.upstream.shadow import (
    NAME_NOT_KNOWN_YET,
    NOT_TOLD,
    Identity,
    Refused,
    Shadow,
    ShadowName,
    Where,
    follow,
    identity_for,
    is_raised,
    renew,
    step_out,
)
from muster.coordinator.upstream.shadow_driver import Driver, Held
from muster.events.ids import GroupId
from muster.events.kafka.errors import LinkError

__all__ = ["Identity", "Lost", "ShadowName", "ShadowUnavailable", "Shadows"]

Lost = Callable[[GroupId, str], None]
"""Told when upstream refuses a group's shadow for good: the group is theirs. The reason is for people."""

SESSION_TIMEOUT_MS: Final = 1_800_000
"""Kafka's default of group.max.session.timeout.ms."""
HEARTBEAT_EVERY_MS: Final = 180_000
WAIT_LIMIT_MS: Final = 20_000


class ShadowUnavailable(Exception):
    """Upstream has not done within the limit what was waited for, or the group has no shadow."""


class Shadows:
    """See the module. `name` tells our shadows from those of other services; it is known when the event log is open.

    `give_up` is told of a bug of ours in what goes on beside the requests.
    """

    def __init__(
        self,
        link: UpstreamLink,
        name: ShadowName = NAME_NOT_KNOWN_YET,
        *,
        lost: Lost,
        give_up: Callable[[Exception], None],
        session_timeout_ms: int = SESSION_TIMEOUT_MS,
        heartbeat_every_ms: int = HEARTBEAT_EVERY_MS,
        wait_limit_ms: int = WAIT_LIMIT_MS,
    ) -> None:
        self.name = name
        self._link = link
        self._lost = lost
        self._give_up = give_up
        self._driver = Driver(link, name, session_timeout_ms=session_timeout_ms)
        self._heartbeat_every_ms = heartbeat_every_ms
        self._wait_limit_ms = wait_limit_ms
        self._held: dict[GroupId, Held] = {}
        self._taking: dict[GroupId, asyncio.Task[Theirs | None]] = {}
        self._refused: set[GroupId] = set()
        """Lost, and still followed: they are not retaken, or two processes would take a shadow from each other."""
        self._is_closed = False

    def know_name(self, name: ShadowName) -> None:
        """The name, before the first group is followed."""
        self.name = self._driver.name = name

    async def close(self) -> None:
        """Stop. The shadows stay upstream, where a restart retakes them."""
        self._is_closed = True
        held, self._held = list(self._held.values()), {}
        tasks: list[asyncio.Task[None] | asyncio.Task[Theirs | None]] = list(self._taking.values())
        for each in held:
            _stop_timer(each)
            each.ended = "Muster is stopping"
            each.tell()
            if each.task is not None:
                tasks.append(each.task)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # ---- whose group it is ---------------------------------------------------------------------------

    def holds(self, group_id: GroupId) -> bool:
        """Whether the group is ours: taken, or being taken."""
        held = self._held.get(group_id)
        return held is not None and held.shadow.wanted is not None

    def follows(self, group_id: GroupId) -> bool:
        """Whether upstream may have a shadow of ours in the group: it is in, or on its way in or out."""
        return group_id in self._held

    def is_in(self, group_id: GroupId) -> bool:
        """Whether upstream has the group's shadow now, so that it is listed there; it may be about to leave."""
        held = self._held.get(group_id)
        return held is not None and held.shadow.where in {Where.JOINED, Where.IN}

    async def look(self, group_id: GroupId) -> Theirs | None:
        """Why the group is theirs; None when nobody is in it upstream. Raises ShadowUnavailable."""
        try:
            verdict = await whose_is(self._link, group_id, self.name)
        except LinkError as error:
            raise ShadowUnavailable(f"upstream does not tell whose group {group_id} is: {error}") from error
        return verdict if isinstance(verdict, Theirs) else None

    def is_leaving(self, group_id: GroupId) -> bool:
        """Whether upstream still has a shadow that nobody wants any more."""
        return group_id in self._held and not self.holds(group_id)

    async def take(self, group_id: GroupId) -> Theirs | None:
        """None: the group is ours now, and its shadow's join is under way or done. Else why it is theirs.

        Returns once the join was sent. Concurrent calls share one attempt. Raises ShadowUnavailable when upstream does
        not tell.
        """
        if self.holds(group_id):
            return None
        taking = self._taking.get(group_id)
        if taking is None:
            if self._is_closed:
                raise ShadowUnavailable("Muster is stopping")
            taking = self._taking[group_id] = asyncio.create_task(self._take(group_id), name=f"take-{group_id}")
            taking.add_done_callback(lambda done: self._took(group_id, done))
        try:
            return await asyncio.shield(taking)
        except asyncio.CancelledError:
            if not taking.cancelled():
                raise  # who asked has gone
            raise ShadowUnavailable("Muster is stopping") from None

    def _took(self, group_id: GroupId, taking: asyncio.Task[Theirs | None]) -> None:
        del self._taking[group_id]
        error = None if taking.cancelled() else taking.exception()
        if isinstance(error, Exception) and not isinstance(error, ShadowUnavailable):
            self._give_up(error)

    async def _take(self, group_id: GroupId) -> Theirs | None:
        if group_id not in self._held:
            try:
                verdict = await whose_is(self._link, group_id, self.name)
            except LinkError as error:
                raise ShadowUnavailable(f"upstream does not tell whose group {group_id} is: {error}") from error
            if isinstance(verdict, Theirs):
                return verdict
            self._refused.discard(group_id)
            if group_id not in self._held:  # else it was retaken meanwhile
                where = Where.UNSURE if verdict.has_shadow else Where.OUT
                self._held[group_id] = Held(group_id, Shadow(wanted=None, where=where))
        held = self._held[group_id]
        if held.shadow.wanted is None:  # new, or just leaving
            self._change(held, follow(held.shadow, NOT_TOLD))
        held.takers += 1
        try:
            await self._until(held, lambda: held.is_join_sent)
        except ShadowUnavailable:
            if held.refusal is not None:
                return Theirs(held.refusal)
            if held.shadow.wanted == NOT_TOLD:  # else others have got in meanwhile
                self._change(held, follow(held.shadow, None))
            raise
        finally:
            held.takers -= 1
        return None

    # ---- our generations -----------------------------------------------------------------------------

    def follow(self, group_id: GroupId, generation_id: int, is_wanted: bool) -> None:
        """The group has this generation, and needs a shadow or not. What follows from it goes on in tasks.

        A wanted group that is not held is retaken from a former process, few at a time.
        """
        held = self._held.get(group_id)
        if not is_wanted:
            self._refused.discard(group_id)
            if held is not None:
                self._change(held, follow(held.shadow, None))
        elif held is not None:
            self._change(held, follow(held.shadow, generation_id))
        elif group_id not in self._refused and not self._is_closed:
            held = self._held[group_id] = Held(
                group_id, Shadow(wanted=generation_id, where=Where.UNSURE), is_retake=True
            )
            self._wake(held)

    def renew(self, group_id: GroupId) -> None:
        """Have the shadow raised anew for the same generation of ours; until then it has no identity."""
        held = self._held.get(group_id)
        if held is not None:
            self._change(held, renew(held.shadow))

    async def raised(self, group_id: GroupId, generation_id: int) -> None:
        """Return when the shadow was raised for this generation of ours, or a later one. Raises ShadowUnavailable."""
        held = self._held.get(group_id)
        if held is None or held.shadow.wanted is None:
            raise ShadowUnavailable(f"group {group_id} has no shadow upstream")
        await self._until(held, lambda: is_raised(held.shadow, generation_id))

    def identity(self, group_id: GroupId, generation_id: int) -> Identity | None:
        """Under which commits of exactly this generation of ours are relayed; None while it is not raised for it."""
        held = self._held.get(group_id)
        return identity_for(held.shadow, generation_id) if held is not None else None

    def doubt(self, group_id: GroupId) -> None:
        """A broker has not known the shadow by its identity. It is asked again at once, not when a heartbeat is due."""
        held = self._held.get(group_id)
        if held is not None and held.shadow.should_be_in:
            held.is_heartbeat_due = True
            self._wake(held)

    @contextlib.asynccontextmanager
    async def stepped_out(self, group_id: GroupId) -> AsyncIterator[None]:
        """The shadow leaves upstream, the block runs, the shadow joins again. Raises ShadowUnavailable.

        Its join goes on after the block: upstream may park it. There is no identity until it is back. One that is on
        its way in is waited for: were a parked join taken back, the broker would go on with a rebalance of nobody until
        its initial delay is over, and take the group for one that is not empty.
        """
        held = self._held.get(group_id)
        if held is not None:
            await self._until(held, lambda: not held.is_on_its_way_in)
        if held is None or held.ended is not None:
            yield
            return
        held.steps_out += 1
        self._change(held, step_out(held.shadow, is_out=True))
        try:
            await self._until(held, lambda: held.shadow.where is Where.OUT and held.task is None)
            yield
        finally:
            held.steps_out -= 1
            if not held.steps_out:
                self._change(held, step_out(held.shadow, is_out=False))

    async def until_gone(self, group_id: GroupId) -> None:
        """Return when a shadow that nobody wants any more has left upstream. Raises ShadowUnavailable."""
        held = self._held.get(group_id)
        if held is not None:
            await self._until(held, lambda: held.ended is not None)

    async def release_strays(self, is_ours: Callable[[GroupId], bool]) -> list[GroupId]:
        """Have those shadows leave that a former process has left behind in groups of ours which need none now.

        Shadows of other services, and of earlier versions, stay: they leave by the name of ours.

        To be called when all groups of ours were followed, or what they need is taken from them for a moment. Returns
        which groups these are. Raises ShadowUnavailable when upstream does not tell.
        """
        try:
            groups = await shadowed_groups(self._link)
        except LinkError as error:
            raise ShadowUnavailable(f"upstream does not tell which groups have a shadow: {error}") from error
        strays = [each for each in groups if is_ours(each) and each not in self._held and each not in self._refused]
        for group_id in strays:
            stray = self._held[group_id] = Held(group_id, Shadow(wanted=None, where=Where.UNSURE))
            self._wake(stray)
        return strays

    # ---- what goes on beside -------------------------------------------------------------------------

    def _change(self, held: Held, shadow: Shadow) -> None:
        if shadow != held.shadow:
            held.set(shadow)
        self._wake(held)

    def _wake(self, held: Held) -> None:
        if held.task is None and held.ended is None:
            held.task = asyncio.create_task(self._drive(held), name=f"shadow-{held.group_id}")
            held.task.add_done_callback(on_failure(self._give_up))

    async def _drive(self, held: Held) -> None:
        _stop_timer(held)
        refused = await self._driver.drive(held)
        held.task = None
        if refused is not None:
            self._refuse(held, refused)
        elif held.shadow.wanted is None and not held.steps_out:
            self._end(held, "nobody is left in it")
        elif held.shadow.should_be_in:
            every_ms = min(self._heartbeat_every_ms, self._driver.session_timeout_ms // 5)
            after_s = every_ms / 1000 * _fraction(held.group_id)
            held.timer = asyncio.get_running_loop().call_later(after_s, self._beat, held)
        held.tell()

    def _beat(self, held: Held) -> None:
        if held.shadow.wanted == NOT_TOLD:  # taken for a join that came to nothing: no generation was ever told
            self._change(held, follow(held.shadow, None))
        else:
            held.is_heartbeat_due = True
            self._wake(held)

    def _refuse(self, held: Held, refused: Refused) -> None:
        held.refusal = refused.reason
        self._end(held, refused.reason)
        is_told_by_take = held.takers > 0 and held.shadow.wanted == NOT_TOLD
        if held.shadow.wanted is not None and not is_told_by_take:
            self._refused.add(held.group_id)
            self._lost(held.group_id, refused.reason)

    def _end(self, held: Held, reason: str) -> None:
        held.ended = reason
        held.tell()
        if self._held.get(held.group_id) is held:
            del self._held[held.group_id]

    async def _until(self, held: Held, condition: Callable[[], bool]) -> None:
        try:
            async with asyncio.timeout(self._wait_limit_ms / 1000):
                while not condition():
                    if held.ended is not None:
                        raise ShadowUnavailable(f"group {held.group_id} has no shadow upstream: {held.ended}")
                    await held.change()
        except TimeoutError as error:
            why = held.trouble or "upstream has not answered"
            raise ShadowUnavailable(
                f"the shadow of group {held.group_id} is not ready after {self._wait_limit_ms} ms: {why}"
            ) from error


def _fraction(group_id: GroupId) -> float:
    """From 0.5 to 1, always the same for a group: so heartbeats of many groups do not come together."""
    return 0.5 + crc32(group_id.encode()) / 2**33


def _stop_timer(held: Held) -> None:
    if held.timer is not None:
        held.timer.cancel()
        held.timer = None
