"""The consumers of one group: all of one library, started and closed as a test goes on.

It tracks the group's members, and waits until each has its share.
"""

import asyncio
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from uuid import uuid4

from muster.events.causes import Cause
from muster.events.events import RebalanceStarted
from muster.events.ids import GroupId
from muster.events.log.url import open_log
from muster.replay.history.items import Happened
from tests.clients.conftest import PARTITIONS, TOPIC
from tests.clients.consumers import RunningConsumer
from tests.clients.probe import described, generation_of, until_stable
from tests.muster_process import MusterProcess
from tests.replay.whole import History, read_histories
from tests.waiting import until_so

ALL = frozenset(range(PARTITIONS))


class Crew:
    """The consumers of one group."""

    def __init__(self, muster: MusterProcess, library: type[RunningConsumer], topic: str = TOPIC) -> None:
        self.group_id = f"{library.__name__.lower()}-{uuid4().hex[:8]}"
        self.bootstrap = muster.bootstrap
        self.topic = topic
        self._log = muster.log
        self.consumers: list[RunningConsumer] = []
        self._library = library

    def add(self, instance: str | None = None) -> RunningConsumer:
        """Add a process, which is not a member yet."""
        consumer = self._library(self.bootstrap, self.group_id, self.topic, instance=instance).start()
        self.consumers.append(consumer)
        return consumer

    def close(self, consumer: RunningConsumer) -> None:
        """Close one cleanly."""
        self.consumers.remove(consumer)
        consumer.close()

    def shares(self) -> list[list[int]]:
        return [sorted(consumer.assigned) for consumer in self.consumers]

    def until_shared(self) -> None:
        """Wait until each partition has one owner, each member has as many as the others, and none will rejoin."""

        def shared() -> bool:
            assert [consumer.error for consumer in self.consumers if consumer.error] == []
            even = {len(consumer.assigned) for consumer in self.consumers} == {PARTITIONS // len(self.consumers)}
            return even and sorted(partition for share in self.shares() for partition in share) == sorted(ALL)

        def settled() -> bool:
            until_so(shared, lambda: (self.shares(), described(self.bootstrap, self.group_id)))
            until_stable(self.bootstrap, self.group_id, members=len(self.consumers))
            seen, since_s = self.assignments, time.monotonic()
            until_so(
                lambda: all(consumer.wants_nothing(since_s) for consumer in self.consumers),
                lambda: [consumer.error for consumer in self.consumers],
            )
            until_stable(self.bootstrap, self.group_id, members=len(self.consumers))
            return self.assignments == seen

        until_so(settled, self.shares)

    def end(self) -> None:
        """Close the remaining ones, in any state."""
        for consumer in self.consumers:
            consumer.end()

    def until_empty(self) -> None:
        """Wait until the group has no members."""
        until_so(lambda: not described(self.bootstrap, self.group_id)["members"], lambda: "there are members left")

    @property
    def generation(self) -> int:
        return generation_of(self.bootstrap, self.group_id)

    @property
    def triggers(self) -> list[Cause]:
        """The triggers of all rebalances, except those that a leader requested by itself.

        kafka-python's leader does, when a heartbeat reports a rebalance that it has taken part in already.
        """

        async def read() -> History:
            log = open_log(self._log, read_only=True)
            await log.open()
            try:
                group_id = GroupId(self.group_id)
                return (await read_histories(log, group=group_id))[group_id]
            finally:
                await log.close()

        events = (item.event for item in asyncio.run(read()).items if isinstance(item, Happened))
        causes = [event.why.cause for event in events if isinstance(event, RebalanceStarted)]
        return [cause for cause in causes if cause is not Cause.LEADER_REJOINED]

    @property
    def assignments(self) -> Sequence[int]:
        return [consumer.assignments for consumer in self.consumers]


@contextmanager
def crew(muster: MusterProcess, library: type[RunningConsumer], topic: str = TOPIC) -> Iterator[Crew]:
    """Consumers of one library in a new group; the remaining ones are closed at the end."""
    running = Crew(muster, library, topic)
    with ExitStack() as stack:
        stack.callback(running.end)
        yield running
        for consumer in list(running.consumers):
            running.close(consumer)
