"""Reads the log and queries the service after the fault: events, committed offsets, groups."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from typing import Final, Self

import msgspec
from kio.schema.errors import ErrorCode
from kio.schema.offset_fetch.v8.request import OffsetFetchRequest, OffsetFetchRequestGroup
from kio.schema.offset_fetch.v8.response import OffsetFetchResponse
from kio.schema.types import GroupId
from tenacity import AsyncRetrying, retry_if_exception_type, stop_after_delay, wait_fixed

from muster.coordinator.client.coordinator_link import CoordinatorLink, NoCoordinator
from muster.drills.names import Names
from muster.events.events import AnyPartitionEvent
from muster.events.kafka.exchange import Exchange
from muster.events.kafka.security import KafkaSecurity
from muster.events.log.base import EventLog
from muster.events.records import ForeignRecords, StoredRecord
from muster.replay.history.items import Coordinated, Item, PassedOver, Told, with_gaps
from muster.replay.logs.opening import open_for_reading
from muster.replay.logs.sources import read_record


class LogRead(msgspec.Struct, frozen=True, kw_only=True):
    """The part of the log that was read. `histories`: the items of each group.

    `owners`: the events about the partitions themselves, one partition after another, each in the order of the log.
    """

    histories: Mapping[str, Sequence[Item]]
    owners: Sequence[AnyPartitionEvent]


class DrilledLog:
    """The log of the service, opened for reading by `async with`. Raises LogError and EventsError."""

    def __init__(self, url: str, names: Names, security: KafkaSecurity, *, is_new: bool = False) -> None:
        """`is_new`: the log was created for the drill, so it is read from its first record."""
        self._log: EventLog = open_for_reading(url, security=security)
        self._names = names
        self._is_new = is_new
        self._begin: dict[int, int] = {}

    @property
    def partitions(self) -> int:
        return self._log.partitions

    async def __aenter__(self) -> Self:
        await self._log.open()
        for number in range(self._log.partitions):
            self._begin[number] = 0 if self._is_new else await self._log.end_offset(number)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._log.close()

    async def read(self) -> LogRead:
        """Read what was appended since the drill began."""
        histories: defaultdict[str, list[Told]] = defaultdict(list)
        owners: list[AnyPartitionEvent] = []
        for partition, start in self._begin.items():
            of_partition: list[Coordinated] = []
            async for record in self._records(partition, start):
                found = read_record(record)
                if found is None:
                    continue
                group_id, told = found
                if isinstance(told, PassedOver):
                    continue
                if group_id is None and isinstance(told, Coordinated):
                    of_partition.append(told)
                    for its in histories.values():
                        if its and its[0].position.partition == partition:
                            its.append(told)
                elif group_id is not None and self._names.is_ours(group_id):
                    if group_id not in histories:
                        histories[group_id] += of_partition
                    histories[group_id].append(told)
            owners += [each.event for each in of_partition]
        return LogRead(histories={key: tuple(with_gaps(its)) for key, its in histories.items()}, owners=owners)

    async def owners_of(self, partition: int) -> Sequence[AnyPartitionEvent]:
        """Return the events about one partition itself since the drill began."""
        found = [read_record(record) async for record in self._records(partition, self._begin[partition])]
        return [told[1].event for told in found if told is not None and isinstance(told[1], Coordinated)]

    async def _records(self, partition: int, start: int) -> AsyncIterator[StoredRecord]:
        foreign_records = ForeignRecords()
        async for chunk in self._log.read(partition, start=start):
            for record in foreign_records.without(chunk):
                yield record


TIMEOUT_MS: Final = 30_000
LIST_EVERY_S: Final = 0.2


async def committed(bootstrap: str, group_ids: Iterable[str], security: KafkaSecurity) -> Mapping[tuple[str, int], int]:
    """Fetch the committed offsets by group and partition; each group has one topic. Raises AdminError."""
    link = CoordinatorLink(bootstrap, retry_ms=TIMEOUT_MS, security=security)

    async def of(group_id: str) -> dict[tuple[str, int], int]:
        request = OffsetFetchRequest(groups=(OffsetFetchRequestGroup(group_id=GroupId(group_id), topics=None),))
        answer = await link.ask(group_id, Exchange(request, OffsetFetchResponse), _error_of, changes=False)
        return {
            (group_id, int(each.partition_index)): int(each.committed_offset)
            for topic in answer.groups[0].topics
            for each in topic.partitions
        }

    try:
        found: dict[tuple[str, int], int] = {}
        for offsets in await asyncio.gather(*map(of, group_ids)):
            found |= offsets
        return found
    finally:
        await link.close()


async def groups_there(bootstrap: str, security: KafkaSecurity, *, timeout_ms: int = TIMEOUT_MS) -> frozenset[str]:
    """List the ids of all groups; wait for a service that is still reading its log. Raises AdminError."""
    link = CoordinatorLink(bootstrap, retry_ms=timeout_ms, security=security)
    attempts = AsyncRetrying(
        retry=retry_if_exception_type(NoCoordinator),
        wait=wait_fixed(LIST_EVERY_S),
        stop=stop_after_delay(timeout_ms / 1000),
        reraise=True,
    )
    try:
        return frozenset(await attempts(link.list_groups))
    finally:
        await link.close()


def _error_of(answer: OffsetFetchResponse) -> tuple[ErrorCode, str | None]:
    return answer.groups[0].error_code, None
