"""Fetches the committed offsets of the drill's groups from their coordinators, and asks which groups there are."""

import asyncio
from collections.abc import Iterable, Mapping
from typing import Final

from kio.schema.errors import ErrorCode
from kio.schema.offset_fetch.v8.request import OffsetFetchRequest, OffsetFetchRequestGroup
from kio.schema.offset_fetch.v8.response import OffsetFetchResponse
from kio.schema.types import GroupId
from tenacity import AsyncRetrying, retry_if_exception_type, stop_after_delay, wait_fixed

from muster.coordinator.client.coordinator_link import CoordinatorLink, NoCoordinator
from muster.events.kafka.exchange import Exchange
from muster.events.kafka.security import KafkaSecurity

TIMEOUT_MS: Final = 30_000
LIST_EVERY_S: Final = 0.2


async def committed(bootstrap: str, group_ids: Iterable[str], security: KafkaSecurity) -> Mapping[tuple[str, int], int]:
    """The offsets by group and partition; each group has one topic. Raises AdminError."""
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
    """The ids of all groups; a service that reads its log yet is waited for. Raises AdminError."""
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
