"""Administrators' requests to each broker of a cluster: every group is known to one of them."""

from collections.abc import Iterator
from contextlib import AsyncExitStack
from typing import Any, Final

import pytest

from tests.brokers.broker import Broker
from tests.brokers.cluster import Cluster
from tests.conformance.wire import Connection
from tests.coordinator.sidecar.admin_stage import Front, emptied, formed, front_of, new_name, talking, until_empty_at

pytestmark = pytest.mark.broker

NOT_COORDINATOR: Final = 16
GROUPS: Final = 4
"""Groups of each kind: enough to have several coordinators."""


@pytest.fixture(scope="module")
def front(kafka_cluster: Cluster) -> Iterator[Front]:
    first, *_ = kafka_cluster.bootstrap.split(",")
    with front_of(Broker(bootstrap=first, how=kafka_cluster.how)) as front:
        yield front


async def test_each_group_is_known_to_its_coordinator_alone(kafka_cluster: Cluster, front: Front) -> None:
    """It is listed once, by its upstream coordinator, whether upstream lists it or not; other brokers do not describe
    it.

    Settings are altered at any broker, as Kafka's are.
    """
    async with AsyncExitStack() as stack:
        first = await stack.enter_async_context(talking(front.muster.bootstrap))
        nodes = {
            node_id: await stack.enter_async_context(talking(address))
            for node_id, address in (await _listeners(first)).items()
        }
        groups = {new_name(kind): kind for kind in ("member", "left", "forgotten") for _ in range(GROUPS)}
        coordinators = await _coordinators(first, list(groups))
        assert len(set(coordinators.values())) > 1
        for group_id, kind in groups.items():
            node_id = coordinators[group_id]
            if kind == "member":
                await formed(nodes[node_id], group_id, front.topic)
            else:
                await emptied(nodes[node_id], group_id, front.topic, {0: 1})
            if kind == "forgotten":
                await _forget(kafka_cluster.address(node_id), group_id)

        for node_id, connection in nodes.items():
            mine = {group_id for group_id, coordinator in coordinators.items() if coordinator == node_id}
            assert await _listed(connection, groups) == sorted(mine)
            described = await connection.ask(
                "DescribeGroups", 6, groups=list(groups), include_authorized_operations=True
            )
            errors = {each["group_id"]: each["error_code"] for each in described["groups"]}
            assert errors == {each: 0 if each in mine else NOT_COORDINATOR for each in groups}
            assert set(await _altered(connection, groups)) == {0}


async def _forget(bootstrap: str, group_id: str) -> None:
    """Have the broker delete a group without members."""
    await until_empty_at(Broker(bootstrap=bootstrap, how=""), group_id)
    async with talking(bootstrap) as direct:
        deleted = await direct.ask("DeleteGroups", 2, groups_names=[group_id])
    assert deleted["results"][0]["error_code"] == 0


async def _listeners(connection: Connection) -> dict[int, str]:
    metadata = await connection.ask(
        "Metadata",
        9,
        topics=[],
        allow_auto_topic_creation=False,
        include_cluster_authorized_operations=False,
        include_topic_authorized_operations=False,
    )
    return {each["node_id"]: f"{each['host']}:{each['port']}" for each in metadata["brokers"]}


async def _coordinators(connection: Connection, group_ids: list[str]) -> dict[str, int]:
    found = await connection.ask("FindCoordinator", 4, key_type=0, coordinator_keys=group_ids)
    assert {each["error_code"] for each in found["coordinators"]} == {0}
    return {each["key"]: each["node_id"] for each in found["coordinators"]}


async def _listed(connection: Connection, groups: dict[str, Any]) -> list[str]:
    answer = await connection.ask("ListGroups", 5, states_filter=[], types_filter=[])
    assert answer["error_code"] == 0
    return sorted(each["group_id"] for each in answer["groups"] if each["group_id"] in groups)


async def _altered(connection: Connection, groups: dict[str, Any]) -> list[int]:
    change = {"name": "target.group.size", "config_operation": 0, "value": "3"}
    resources = [{"resource_type": 32, "resource_name": each, "configs": [change]} for each in groups]
    answer = await connection.ask("IncrementalAlterConfigs", 1, resources=resources, validate_only=False)
    return [each["error_code"] for each in answer["responses"]]
