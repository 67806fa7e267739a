"""Creates and deletes the drill's topics and groups in the cluster.

The transactional ids of the log's owners cannot be deleted. They contain the run's name, and stay until the brokers
forget them (transactional.id.expiration.ms).
"""

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Final

from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import KafkaError, for_code
from kio.schema.delete_groups.v2.request import DeleteGroupsRequest
from kio.schema.delete_groups.v2.response import DeleteGroupsResponse
from kio.schema.errors import ErrorCode
from kio.schema.types import GroupId

from muster.coordinator.client.coordinator_link import AdminError, CoordinatorLink, Refused
from muster.coordinator.client.group_admin import GroupAdmin
from muster.drills.names import Names
from muster.drills.plan import ServiceFailed
from muster.events.kafka.errors import LinkError
from muster.events.kafka.exchange import Exchange
from muster.events.kafka.security import KafkaSecurity
from muster.events.log.kafka.names import ownership_group

TIMEOUT_MS: Final = 10_000
REPLICATION: Final = 3


@asynccontextmanager
async def cluster_admin(bootstrap: str, security: KafkaSecurity) -> AsyncIterator[AIOKafkaAdminClient]:
    """Connect an admin client to the cluster. Raises KafkaError and OSError."""
    admin = AIOKafkaAdminClient(
        bootstrap_servers=bootstrap,
        client_id="muster-drill",
        request_timeout_ms=TIMEOUT_MS,
        **security.client_arguments(),
    )
    try:
        await admin.start()
        yield admin
    finally:
        await admin.close()


async def node_ids(bootstrap: str, security: KafkaSecurity) -> list[int]:
    """Return the ids of all brokers. Raises ServiceFailed."""
    try:
        async with cluster_admin(bootstrap, security) as admin:
            return [int(broker["node_id"]) for broker in (await admin.describe_cluster())["brokers"]]
    except (KafkaError, OSError) as error:
        raise ServiceFailed(f"--kafka {bootstrap} does not name its brokers: {error}") from error


async def make_topic(bootstrap: str, name: str, partitions: int, security: KafkaSecurity, *, brokers: int) -> None:
    """Create a topic. Raises ServiceFailed."""
    topic = NewTopic(name, partitions, min(REPLICATION, brokers))
    try:
        async with cluster_admin(bootstrap, security) as admin:
            answer = await admin.create_topics([topic])
    except (KafkaError, OSError) as error:
        raise ServiceFailed(f"topic {name} cannot be made at {bootstrap}: {error}") from error
    for _, code, *_ in answer.topic_errors:
        if code:
            raise ServiceFailed(f"topic {name} cannot be made at {bootstrap}: {for_code(code).__name__}")


ATTEMPTS = 5
RETRY_S = 0.3


async def delete_topics(bootstrap: str, names: Names, security: KafkaSecurity) -> list[str]:
    """Delete all topics of the run; return descriptions of those that are left."""
    try:
        async with cluster_admin(bootstrap, security) as admin:
            topics = [topic for topic in await admin.list_topics() if names.is_topic(topic)]
            answer = await admin.delete_topics(topics) if topics else None
    except (KafkaError, OSError) as error:
        return [f"topics {names.topic}* at {bootstrap}: {error}"]
    refused = [(topic, code) for topic, code, *_ in (answer.topic_error_codes if answer else ()) if code]
    return [f"topic {topic} at {bootstrap}: {ErrorCode(code).name.upper()}" for topic, code in refused]


async def delete_all_groups(bootstrap: str, names: Names, security: KafkaSecurity) -> list[str]:
    """Delete the run's groups in the cluster, with the members that processes left there; return what is left.

    These are the ownership group of the processes, and, for sidecars, each group that has had a shadow of theirs.
    """
    ownership = ownership_group(names.topic)
    try:
        async with GroupAdmin(bootstrap, security=security, limit_ms=TIMEOUT_MS) as admin:
            found = [each for each in await admin.list_groups() if each == ownership or names.is_ours(each)]
    except (AdminError, LinkError) as error:
        return [f"group {ownership}, and groups {names.prefix}-* at {bootstrap}: {error}"]
    return await _delete_with_members(bootstrap, found, security)


async def delete_groups(bootstrap: str, names: Names, group_ids: Iterable[str], security: KafkaSecurity) -> list[str]:
    """Delete groups of the run, with their members; return descriptions of those that are left. Raises NotOurs.

    A join that was in progress when its member was cancelled may still succeed and add the member again, so failed
    deletions are retried.
    """
    ours = list(group_ids)
    for group_id in ours:
        names.check_ours(group_id)
    for _ in range(ATTEMPTS - 1):
        if not await _delete_with_members(bootstrap, ours, security):
            return []
        await asyncio.sleep(RETRY_S)
    return await _delete_with_members(bootstrap, ours, security)


async def _delete_with_members(bootstrap: str, group_ids: Sequence[str], security: KafkaSecurity) -> list[str]:
    try:
        async with GroupAdmin(bootstrap, security=security, limit_ms=TIMEOUT_MS) as admin:
            await asyncio.gather(*(_empty(admin, group_id) for group_id in group_ids))
    except (AdminError, LinkError) as error:
        return [f"groups at {bootstrap}: {error}"]
    return await _delete(bootstrap, group_ids, security)


async def _empty(admin: GroupAdmin, group_id: str) -> None:
    """Remove all members of a group, if the group exists. Raises AdminError."""
    try:
        members = (await admin.describe_group(group_id)).members
        if ids := [each.group_instance_id or each.member_id for each in members]:
            await admin.remove_members_from_group(group_id, ids, reason="the drill is over")
    except Refused as error:
        if error.error is not ErrorCode.group_id_not_found:
            raise


async def _delete(bootstrap: str, group_ids: Sequence[str], security: KafkaSecurity) -> list[str]:
    link = CoordinatorLink(bootstrap, retry_ms=TIMEOUT_MS, security=security)

    async def delete(group_id: str) -> str | None:
        exchange = Exchange(DeleteGroupsRequest(groups_names=(GroupId(group_id),)), DeleteGroupsResponse)
        try:
            answer = await link.ask(group_id, exchange, _error_of, changes=True)
        except (AdminError, LinkError) as failed:
            return f"group {group_id} at {bootstrap}: {failed}"
        error, _ = _error_of(answer)
        is_gone = error in (ErrorCode.none, ErrorCode.group_id_not_found)
        return None if is_gone else f"group {group_id} at {bootstrap}: {error.name.upper()}"

    try:
        return [why for why in await asyncio.gather(*map(delete, group_ids)) if why is not None]
    finally:
        await link.close()


def _error_of(answer: DeleteGroupsResponse) -> tuple[ErrorCode, str | None]:
    return answer.results[0].error_code, None
