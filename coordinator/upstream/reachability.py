"""Checks whether a group's members can reach Muster, before deadlines of the group are decided.

Each client connection has a broker connection behind it, on which the broker is asked what the client may do. While the
group's coordinator upstream hangs, is down or is loading the group, no request of a live member arrives; in Kafka, the
next coordinator would give every member a full session. So before a session expires, that broker is asked:

    it answers, and was reachable since the session began    the session expires
    it answers, but was unreachable                          the session is extended (below)
    it does not answer                                       it is asked again until it does, then as above

A broker also counts as answering if it answers other clients in the meantime, or if Muster itself has no ports or files
left for the connection. A session is extended to its full time once. A member that has not been heard from since then
gets only the time that was lost after that, counted from the broker's last response to any request; otherwise a dead
member would stay for as long as the broker falters.

A broker that closes a connection may be full, since all clients share our address (`max.connections.per.ip`), or about
to stop. So a connection to each broker is kept open from the start, on which a full broker answers. If it is lost, new
ones are tried until the question times out: by then, a broker that has stopped refuses them. If it closes each of them,
its responses to others decide: a full broker answers other clients; a broker that is down behind a proxy that accepts
connections in its place answers nobody, and counts as unreachable. It is asked again after a second, and the group's
new coordinator is looked up.

Each broker is asked about many groups at a time, and an unreachable one once a second, no matter how many groups it
has.
"""

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from itertools import islice
from typing import Final

import msgspec
import structlog
from kio.schema.describe_groups.v5.request import DescribeGroupsRequest
from kio.schema.describe_groups.v5.response import DescribeGroupsResponse
from kio.schema.errors import ErrorCode
from kio.schema.types import GroupId as KafkaGroupId

from muster.coordinator.group.extensions import Unheard
from muster.coordinator.log_throttle import LogThrottle
from muster.coordinator.tasks import BackgroundTasks
from muster.coordinator.upstream.errors import BrokerNotTrusted, UpstreamRefused
from muster.coordinator.upstream.upstream_link import UpstreamLink
from muster.events.ids import GroupId
from muster.events.kafka.errors import COORDINATOR_MOVED, LinkError, OwnShortage
from muster.events.kafka.failures import hung_up

log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)

ANSWER_TIMEOUT_MS: Final = 2_000
"""A slower broker has not read the members' requests either. Counts only time in which our loop ran (`_TurnedTime`)."""
RETRY_MS: Final = 500
"""The pause after a closed connection, or a stall of our event loop, before the question is sent again."""
KEPT_OPEN_MS: Final = 5_000
"""How often each broker gets a request that names no group, so that a connection is open when there is a question."""
CONNECT_TIMEOUT_MS: Final = 500
AGAIN_AFTER_MS: Final = 1_000
GROUPS_AT_ONCE: Final = 200
WAIT: Final = "members cannot be heard, sessions wait: the group's coordinator in the cluster does not answer"
BACK: Final = "members can be heard again, sessions last longer"
HAS_MOVED: Final = "its coordinator has moved, and no broker knows where to"
_LANE: Final = "reachability"
_TICK_MS: Final = 100


class _Answers(msgspec.Struct, frozen=True):
    """The coordinator answers, so it reads members' requests; or we cannot ask, which says nothing about them."""


class _Elsewhere(msgspec.Struct, frozen=True):
    """The broker to ask instead; None: look it up."""

    node_id: int | None


class _Unreachable(msgspec.Struct, frozen=True):
    """The broker is unreachable, for this reason: no request of the members arrives."""

    reason: str


_Verdicts = Mapping[GroupId, _Answers | _Elsewhere | _Unreachable]


class _Waiting(msgspec.Struct):
    """A group whose members have fallen silent, and the callback that gets the explanation."""

    explain: Callable[[Unheard | None], None]
    unreachable_since_ms: int = 0
    """The earliest time since which no request of the members can have arrived."""
    outage: "_Outage | None" = None
    """The outage of its coordinator, if any."""
    has_moved: bool = False


class _Outage(msgspec.Struct, eq=False):
    """An outage of one broker; `node_id` None: no broker says which one is the coordinator."""

    node_id: int | None
    unreachable: int = 0
    """The number of groups that wait for this broker."""
    back: int = 0
    """The number of groups whose members are reachable again."""


_Groups = dict[GroupId, _Waiting]


class Reachability:
    """Checks upstream coordinators before members expire. `give_up` is called on an internal error."""

    def __init__(
        self,
        link: UpstreamLink,
        *,
        give_up: Callable[[Exception], None],
        monotonic_ms: Callable[[], int],
    ) -> None:
        self._link = link
        self._heard = link.heard
        self._monotonic_ms = monotonic_ms
        self._throttle = LogThrottle(monotonic_ms)
        self._tasks = BackgroundTasks(give_up)
        self._waiting: _Groups = {}
        self._outages: dict[int | None, _Outage] = {}
        self._by_broker: dict[int | None, _Groups] = {}
        """The same groups, by the node id of the broker to ask; None: it is being looked up."""

    async def close(self) -> None:
        """Stop asking; pending callbacks are not called."""
        await self._tasks.close()

    def ask_about_silence(self, group_id: GroupId, explain: Callable[[Unheard | None], None]) -> None:
        """Call `explain` once the group's coordinator answers, with the last period in which members were not heard.

        None: there was no such period. A second call for the same group replaces the callback.
        """
        waiting = self._waiting.get(group_id)
        if waiting is not None:
            waiting.explain = explain
            return
        waiting = self._waiting[group_id] = _Waiting(explain)
        self._place(group_id, waiting, self._link.known_coordinator(group_id))

    def _place(self, group_id: GroupId, waiting: _Waiting, node_id: int | None) -> None:
        groups = self._by_broker.get(node_id)
        if groups is None:
            groups = self._by_broker[node_id] = {}
            self._tasks.start(self._watch(node_id, groups), f"reachable-broker-{node_id}")
        groups[group_id] = waiting

    def keep_open(self) -> None:
        """Keep a connection for questions open to each broker, before clients use up all that it allows us."""
        self._tasks.start(self._keep_open(), "reachable-kept-open")

    async def _keep_open(self) -> None:
        while True:
            await asyncio.gather(*(self._touch(node_id) for node_id in list(self._link.brokers())))
            await asyncio.sleep(KEPT_OPEN_MS / 1000)

    async def _touch(self, node_id: int) -> None:
        with contextlib.suppress(LinkError, TimeoutError):  # the next question will fail, too
            await self._describe(node_id, [])

    async def _watch(self, node_id: int | None, groups: _Groups) -> None:
        """Ask one broker, or look up coordinators, until no group waits for it."""
        while groups:
            asked = list(islice(groups, GROUPS_AT_ONCE))
            verdicts = await (self._find(asked) if node_id is None else self._ask_broker(node_id, asked, groups))
            elsewhere = False
            for group_id, verdict in verdicts.items():
                waiting = groups.pop(group_id)
                match verdict:
                    case _Answers():
                        if node_id is not None:
                            self._link.learn_coordinator(group_id, node_id)
                        self._explain(group_id, waiting)
                    case _Elsewhere():
                        elsewhere = True
                        self._place(group_id, waiting, verdict.node_id)
                    case _Unreachable():
                        self._note_unreachable(node_id, waiting)
                        groups[group_id] = waiting
            unreachable = [verdict.reason for verdict in verdicts.values() if isinstance(verdict, _Unreachable)]
            if unreachable and not elsewhere:
                self._log_waiting(node_id, groups, unreachable[0])
                await asyncio.sleep(AGAIN_AFTER_MS / 1000)
        del self._by_broker[node_id]

    def _explain(self, group_id: GroupId, waiting: _Waiting) -> None:
        del self._waiting[group_id]
        outage = waiting.outage
        if outage is None:
            waiting.explain(self._link.last_coordinator_outage(group_id))
            return
        outage.back += 1
        self._end_wait(outage)
        waiting.explain(Unheard(waiting.unreachable_since_ms, self._monotonic_ms()))

    def _note_unreachable(self, node_id: int | None, waiting: _Waiting, since_ms: int = 0) -> None:
        """Note that a group's broker is unreachable. `since_ms`: when it was last heard; 0: unknown."""
        before = waiting.outage
        if before is not None and before.node_id == node_id:
            return
        if before is None:
            waiting.unreachable_since_ms = since_ms
        waiting.outage = self._outages.setdefault(node_id, _Outage(node_id))
        waiting.outage.unreachable += 1
        if before is not None:
            self._end_wait(before)  # its groups now wait for another broker

    def _end_wait(self, outage: _Outage) -> None:
        outage.unreachable -= 1
        if outage.unreachable == 0:
            del self._outages[outage.node_id]
            past = self._throttle.end(outage.node_id)
            if past and outage.back:
                log.info(BACK, groups=outage.back, seconds=past.seconds)

    def _log_waiting(self, node_id: int | None, groups: _Groups, reason: str) -> None:
        suppressed = self._throttle.due(node_id)
        if suppressed is not None:
            log.warning(
                WAIT, group_id=next(reversed(groups)), groups=len(groups), reason=reason, others_since=suppressed
            )

    async def _find(self, asked: list[GroupId]) -> _Verdicts:
        """Look up the coordinator of each group."""
        try:
            found = await self._link.coordinators(asked)
        except LinkError as error:
            return dict.fromkeys(asked, _verdict(error))
        return {
            GroupId(group_id): _verdict(node_id) if isinstance(node_id, LinkError) else _Elsewhere(node_id)
            for group_id, node_id in found.items()
        }

    async def _ask_broker(self, node_id: int, asked: list[GroupId], groups: _Groups) -> _Verdicts:
        """Return for each group whether this broker answers; if it is unreachable, look up its successor."""
        heard, began_ms, passed = self._heard[node_id], self._monotonic_ms(), _TurnedTime()
        try:
            while True:
                try:
                    return await self._describe(node_id, asked)
                except (LinkError, TimeoutError) as error:
                    failed = error
                may_hear = _timed_out(failed) or _hung_up(failed)
                if not may_hear or heard.until_ms > began_ms or passed.is_over():
                    break
                await asyncio.sleep(RETRY_MS / 1000)
        finally:
            passed.end()
        silent = _Unreachable(f"broker {node_id} did not answer within {ANSWER_TIMEOUT_MS} ms")
        verdict = _verdict(failed) if isinstance(failed, LinkError) else silent
        if isinstance(verdict, _Answers) or heard.until_ms > began_ms:
            return dict.fromkeys(asked, _Answers())
        for waiting in groups.values():  # if it does not answer for some groups, it does not for the others
            self._note_unreachable(node_id, waiting, heard.until_ms)
        for group_id in asked:
            self._link.forget_coordinator(group_id)
        here = _Elsewhere(node_id)
        return {
            group_id: found if isinstance(found, _Elsewhere) and found != here else verdict
            for group_id, found in (await self._find(asked)).items()
        }

    async def _describe(self, node_id: int, asked: list[GroupId]) -> _Verdicts:
        """Describe the groups at this broker. Raises LinkError, TimeoutError."""
        request = DescribeGroupsRequest(groups=tuple(map(KafkaGroupId, asked)), include_authorized_operations=False)
        async with asyncio.timeout((CONNECT_TIMEOUT_MS + ANSWER_TIMEOUT_MS) / 1000):
            answer = await self._link.ask(  # its own timeout closes a connection that has gone silent
                node_id, request, DescribeGroupsResponse, lane=_LANE, timeout_ms=ANSWER_TIMEOUT_MS
            )
        errors = {str(each.group_id): each.error_code for each in answer.groups}
        return {
            group_id: self._described(node_id, group_id, errors.get(group_id, ErrorCode.none)) for group_id in asked
        }

    def _described(self, node_id: int, group_id: GroupId, error: ErrorCode) -> _Answers | _Elsewhere | _Unreachable:
        if error is ErrorCode.not_coordinator:
            self._link.forget_coordinator(group_id)
            waiting = self._waiting[group_id]
            waiting.has_moved = not waiting.has_moved  # ask once after each lookup
            return _Elsewhere(None) if waiting.has_moved else _Unreachable(HAS_MOVED)
        if error in COORDINATOR_MOVED:
            return _Unreachable(f"broker {node_id} says {error.name.upper()}")
        return _Answers()


class _TurnedTime:
    """The part of a question's timeout in which our event loop ran; a stall of the loop counts as two ticks."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._left_s, self._counted_s = ANSWER_TIMEOUT_MS / 1000, self._loop.time()
        self._tick()

    def is_over(self) -> bool:
        """Return whether the broker has had the whole time to answer, give or take a tick."""
        self._count()
        return self._left_s <= _TICK_MS / 1000

    def end(self) -> None:
        self._ticking.cancel()

    def _tick(self) -> None:
        self._count()
        self._ticking = self._loop.call_later(_TICK_MS / 1000, self._tick)

    def _count(self) -> None:
        now_s = self._loop.time()
        self._left_s -= min(now_s - self._counted_s, 2 * _TICK_MS / 1000)
        self._counted_s = now_s


def _timed_out(error: LinkError | TimeoutError) -> bool:
    return isinstance(error, TimeoutError) or isinstance(error.__cause__, TimeoutError)


def _hung_up(error: LinkError | TimeoutError) -> bool:
    return error.__cause__ is not None and hung_up(error.__cause__)


def _verdict(error: LinkError) -> _Answers | _Unreachable:
    """Classify an error. Relayed clients depend on the same trust in certificates, but have ACLs of their own."""
    may_not_ask = isinstance(error, UpstreamRefused) and not isinstance(error, BrokerNotTrusted)
    return _Answers() if may_not_ask or isinstance(error, OwnShortage) else _Unreachable(str(error))
