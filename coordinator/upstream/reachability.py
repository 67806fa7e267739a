"""Whether members can be heard: their heartbeats come through the broker that coordinates their group upstream.

What belongs here: asking that broker before a deadline of the group is decided. What it must not know: which deadlines
there are, and what becomes of them.

A client's connection has a connection to the broker behind it, and what it may do is asked there. While that broker
hangs, is gone or reads its own log of the group, nothing of a member arrives, however alive it is; Kafka's next
coordinator gives everybody a full session. So a session ends when the broker answers at once. If it does not, it is
asked again and again, and the sessions begin anew when it does.
"""

import asyncio
from collections.abc import Callable, Coroutine
from itertools import islice
from typing import Any, Final

import structlog
from kio.schema.describe_groups.v5.request import DescribeGroupsRequest
from kio.schema.describe_groups.v5.response import DescribeGroupsResponse
from kio.schema.errors import ErrorCode
from kio.schema.types import GroupId as KafkaGroupId

from muster.coordinator.group.extensions import Silence
from muster.coordinator.log_throttle import LogThrottle
from muster.coordinator.tasks import on_failure
from muster.coordinator.upstream.link import BrokerNotTrusted, UpstreamLink, UpstreamRefused
from muster.events.ids import GroupId
from muster.events.kafka.errors import COORDINATOR_MOVED, LinkError

log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)

ANSWERS_WITHIN_MS: Final = 2_000
"""A broker that takes longer did not hear the members either."""
OPENS_WITHIN_MS: Final = 500
AGAIN_AFTER_MS: Final = 1_000
LOOKUPS_MAX: Final = 16
"""FindCoordinator at a time."""
GROUPS_AT_ONCE: Final = 200
WAIT: Final = "members cannot be heard, sessions wait: the group's coordinator in the cluster does not answer"
BEGIN_ANEW: Final = "members can be heard again, sessions begin anew"
HAS_MOVED: Final = "its coordinator has moved, and no broker says where to"
_LANE: Final = "reachability"


class Reachability:
    """See the module. `give_up` is told of a bug of ours."""

    def __init__(
        self, link: UpstreamLink, *, give_up: Callable[[Exception], None], monotonic_ms: Callable[[], int]
    ) -> None:
        self._link = link
        self._give_up = give_up
        self._throttle = LogThrottle(monotonic_ms)
        self._asking: set[asyncio.Task[None]] = set()
        self._tell: dict[GroupId, Callable[[Silence], None]] = {}
        self._lookups = asyncio.Semaphore(LOOKUPS_MAX)
        self._waiting: dict[int, dict[GroupId, asyncio.Future[str | None]]] = {}
        """By broker: the groups that it is to be asked about."""
        self._away = self._back = 0
        """How many groups have a coordinator that does not answer; how many had, since all did."""

    async def close(self) -> None:
        """Ask no more; whoever waits is told nothing."""
        asking = list(self._asking)
        for task in asking:
            task.cancel()
        await asyncio.gather(*asking, return_exceptions=True)

    def ask_about_silence(self, group_id: GroupId, tell: Callable[[Silence], None]) -> None:
        """Tell, when the group's coordinator answers, whether it did at once; of two who ask the later is told."""
        if group_id not in self._tell:
            self._begin(self._watch(group_id), f"reachable-{group_id}")
        self._tell[group_id] = tell

    def _begin(self, steps: Coroutine[Any, Any, None], name: str) -> None:
        task = asyncio.create_task(steps, name=name)
        self._asking.add(task)
        task.add_done_callback(self._asking.discard)
        task.add_done_callback(on_failure(self._give_up))

    async def _watch(self, group_id: GroupId) -> None:
        trouble = await self._trouble(group_id)
        if trouble == HAS_MOVED:  # which was not known here: nobody was away
            trouble = await self._trouble(group_id)
        if trouble is not None:
            await self._until_answered(group_id, trouble)
        self._tell.pop(group_id)(Silence.THEIR_OWN if trouble is None else Silence.EXCUSED)

    async def _until_answered(self, group_id: GroupId, trouble: str | None) -> None:
        self._away += 1
        try:
            while trouble is not None:
                unsaid = self._throttle.due(_LANE)
                if unsaid is not None:
                    log.warning(
                        WAIT,
                        group_id=group_id,
                        groups=self._away,
                        reason=trouble,
                        others_since=unsaid,
                    )
                await asyncio.sleep(AGAIN_AFTER_MS / 1000)
                trouble = await self._trouble(group_id)
        finally:
            self._away -= 1
        self._back += 1
        if not self._away and (past := self._throttle.end(_LANE)):
            log.info(BEGIN_ANEW, groups=self._back, seconds=past.seconds)
            self._back = 0

    async def _trouble(self, group_id: GroupId) -> str | None:
        """Why members of the group cannot be heard; None: they can."""
        try:
            async with self._lookups:
                node_id = await self._link.coordinator(group_id)
        except BrokerNotTrusted as error:
            return str(error)
        except UpstreamRefused:
            return None  # Muster is not let in, which says nothing of the members
        except LinkError as error:
            return str(error)
        waiting = self._waiting.get(node_id)
        if waiting is None:
            waiting = self._waiting[node_id] = {}
            self._begin(self._ask(node_id, waiting), f"reachable-broker-{node_id}")
        told = waiting.get(group_id)
        if told is None:
            told = waiting[group_id] = asyncio.get_running_loop().create_future()
        return await told

    async def _ask(self, node_id: int, waiting: dict[GroupId, asyncio.Future[str | None]]) -> None:
        """Ask the broker about all who wait, many groups at a time; who does not answer one does not answer any."""
        while waiting:
            asked = list(islice(waiting, GROUPS_AT_ONCE))
            try:
                troubles = await self._describe(node_id, asked)
            except BrokerNotTrusted as error:
                troubles = dict.fromkeys(waiting, str(error))
            except UpstreamRefused:
                troubles = dict.fromkeys(waiting)
            except TimeoutError:
                troubles = dict.fromkeys(waiting, f"broker {node_id} did not answer within {ANSWERS_WITHIN_MS} ms")
            except LinkError as error:
                troubles = dict.fromkeys(waiting, str(error))
            for group_id, trouble in troubles.items():
                if trouble is not None:
                    self._link.forget_coordinator(group_id)
                waiting.pop(group_id).set_result(trouble)
        del self._waiting[node_id]

    async def _describe(self, node_id: int, groups: list[GroupId]) -> dict[GroupId, str | None]:
        """By group: what keeps its requests from being answered there. Raises LinkError, TimeoutError."""
        request = DescribeGroupsRequest(groups=tuple(map(KafkaGroupId, groups)), include_authorized_operations=False)
        async with asyncio.timeout((OPENS_WITHIN_MS + ANSWERS_WITHIN_MS) / 1000):
            answer = await self._link.ask(  # its own limit closes a connection that has fallen silent
                node_id, request, DescribeGroupsResponse, lane=_LANE, limit_ms=ANSWERS_WITHIN_MS
            )
        errors = {str(each.group_id): each.error_code for each in answer.groups}

        def trouble(error: ErrorCode) -> str | None:
            if error is ErrorCode.not_coordinator:
                return HAS_MOVED
            return f"broker {node_id} says {error.name.upper()}" if error in COORDINATOR_MOVED else None

        return {group_id: trouble(errors.get(group_id, ErrorCode.none)) for group_id in groups}
