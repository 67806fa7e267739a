"""Administrators' requests, in every version, about Muster's groups and others at once."""

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any, Final

import pytest

from tests.brokers.broker import Broker
from tests.conformance.wire import Connection, Fields
from tests.coordinator.sidecar.admin_stage import (
    Front,
    committed,
    committed_by_nobody,
    emptied,
    formed,
    front_of,
    new_name,
    talking,
    until_empty_at,
)

pytestmark = pytest.mark.broker

GROUP, TOPIC = 32, 2
KAFKAS, OURS = "consumer.session.timeout.ms", "target.group.size"
SET: Final = 0


@pytest.fixture(scope="module")
def front(kafka_broker: Broker) -> Iterator[Front]:
    with front_of(kafka_broker) as front:
        yield front


class Scene:
    """The same four groups, once upstream only, and once with some of them ours; `names` are the latter."""

    def __init__(self, front: Front) -> None:
        self.front = front
        self.run = new_name("scene")

    async def set_up(self, direct: Connection, through: Connection) -> None:
        """`member` and `empty` are ours through the sidecar, `theirs` is not, `nobody` does not exist."""
        for side, connection in (("direct", direct), ("through", through)):
            await formed(connection, self.name(side, "member"), self.front.topic)
            await emptied(connection, self.name(side, "empty"), self.front.topic, {0: 1})
            await formed(direct, self.name(side, "theirs"), self.front.topic)
            await until_empty_at(self.front.broker, self.name(side, "empty"))

    def name(self, side: str, group: str) -> str:
        return f"{self.run}-{group}-{side}"

    def names(self, side: str, *groups: str) -> list[str]:
        return [self.name(side, group) for group in groups]

    def plain(self, answer: Any) -> Any:
        """The response without its inherent differences: the side in names, member ids, and hosts, which a broker in a
        container sees differently.
        """
        if isinstance(answer, dict):
            own = {"member_id", "client_host"}
            return {key: f"({key})" if key in own else self.plain(value) for key, value in answer.items()}
        if isinstance(answer, list):
            return [self.plain(each) for each in answer]
        if isinstance(answer, str):
            return answer.replace("-direct", "").replace("-through", "")
        return answer

    def mine(self, entries: Sequence[Fields], key: str) -> list[Fields]:
        """Those of this scene, sorted by name."""
        return sorted(
            (self.plain(each) for each in entries if each[key].startswith(self.run)), key=lambda one: one[key]
        )


@pytest.mark.parametrize("version", range(7))
async def test_groups_are_described_as_kafka_describes_them(front: Front, version: int) -> None:
    """In the order of the request, with the broker's operations; a repeated group only once, unlike in Kafka."""
    scene = Scene(front)
    answers = {}
    async with talking(front.broker.bootstrap) as direct, talking(front.muster.bootstrap) as through:
        await scene.set_up(direct, through)
        arguments = ("theirs", "empty", "nobody", "member", "theirs")
        for side, connection in (("direct", direct), ("through", through)):
            answers[side] = await connection.ask(
                "DescribeGroups", version, groups=scene.names(side, *arguments), include_authorized_operations=True
            )
        only_theirs = await through.ask(
            "DescribeGroups", version, groups=scene.names("direct", *arguments), include_authorized_operations=True
        )
    assert len(answers["direct"]["groups"]) == len(arguments)
    answers["direct"]["groups"] = list({each["group_id"]: each for each in answers["direct"]["groups"]}.values())
    assert [each["group_id"] for each in answers["through"]["groups"]] == scene.names("through", *arguments[:-1])
    by_name = {side: scene.mine(answer["groups"], "group_id") for side, answer in answers.items()}
    assert by_name["through"] == by_name["direct"]
    assert scene.mine(only_theirs["groups"], "group_id") == by_name["direct"]
    assert [each["group_state"] for each in by_name["through"]] == ["Empty", "Stable", "Dead", "Stable"]


@pytest.mark.parametrize("version", range(6))
async def test_groups_are_listed_as_kafka_lists_them(front: Front, version: int) -> None:
    """Each once, with the members' protocol type, for each filter."""
    scene = Scene(front)
    filters: list[dict[str, Any]] = [{}]
    if version >= 4:
        filters += [{"states_filter": states} for states in (["Stable"], [" EMPTY "], ["stable", "empty"], ["No"])]
    if version >= 5:
        filters += [{"types_filter": types} for types in (["classic"], ["Classic", "share"], ["consumer"])]
        filters.append({"states_filter": ["Empty"], "types_filter": ["classic"]})
    async with talking(front.broker.bootstrap) as direct, talking(front.muster.bootstrap) as through:
        await scene.set_up(direct, through)
        for each in filters:
            body = {"states_filter": [], "types_filter": []} | each
            answer = await through.ask("ListGroups", version, **body)
            assert (answer["error_code"], answer["throttle_time"] if version else 0) == (0, 0)
            listed = scene.mine(answer["groups"], "group_id")
            # Those of both sides are there, and look the same.
            assert listed[::2] == listed[1::2], each
            assert {one["protocol_type"] for one in listed} <= {"consumer"}
            known = [one["group_id"].removeprefix(f"{scene.run}-") for one in listed[::2]]
            assert known == _expected(each), each


def _expected(filters: dict[str, Any]) -> list[str]:
    states = {state.strip().lower() for state in filters.get("states_filter", [])}
    types = {each.lower() for each in filters.get("types_filter", [])}
    if types and "classic" not in types:
        return []
    groups = {"empty": "empty", "member": "stable", "theirs": "stable"}
    return [name for name, state in groups.items() if not states or state in states]


@pytest.mark.parametrize("version", range(3))
async def test_groups_are_deleted_as_kafka_deletes_them(front: Front, version: int) -> None:
    """One result each; groups with members stay; deleted ones are gone on both sides, with their offsets."""
    scene = Scene(front)
    results = {}
    async with talking(front.broker.bootstrap) as direct, talking(front.muster.bootstrap) as through:
        await scene.set_up(direct, through)
        arguments = ("theirs", "empty", "nobody", "member", "empty")
        for side, connection in (("direct", direct), ("through", through)):
            answer = await connection.ask("DeleteGroups", version, groups_names=scene.names(side, *arguments))
            assert len(answer["results"]) == 4
            results[side] = {scene.plain(each["group_id"]): each["error_code"] for each in answer["results"]}
            again = await connection.ask("DeleteGroups", version, groups_names=scene.names(side, "empty"))
            results[side]["again"] = again["results"][0]["error_code"]
        assert results["through"] == results["direct"]
        assert sorted(results["through"].values()) == [0, 68, 68, 69, 69]
        gone = scene.name("through", "empty")
        for connection in (direct, through):
            assert await committed(connection, gone, front.topic) == {}
            response = await connection.ask("DescribeGroups", 5, groups=[gone], include_authorized_operations=False)
            assert response["groups"][0]["group_state"] == "Dead"
        await formed(through, gone, front.topic)


def by_partition(answer: Fields) -> Fields:
    """An OffsetDelete response by partition: Kafka guarantees no order."""
    errors = {
        (topic["name"], each["partition_index"]): each["error_code"]
        for topic in answer["topics"]
        for each in topic["partitions"]
    }
    return answer | {"topics": errors}


async def test_offsets_are_deleted_as_kafka_deletes_them(front: Front) -> None:
    """A live group loses all offsets but those of subscribed topics; then its shadow returns, and commits continue."""
    scene, other = Scene(front), front.topic
    answers: dict[str, Any] = {}
    async with talking(front.broker.bootstrap) as direct, talking(front.muster.bootstrap) as through:
        for side, connection in (("direct", direct), ("through", through)):
            group_id = scene.name(side, "live")
            member = await formed(connection, group_id, "subscribed-elsewhere")
            assert await member.commit(other, {0: 5, 1: 6}) == [0, 0]
            topics = [
                {"name": other, "partitions": [{"partition_index": each} for each in (0, 99)]},
                {"name": "subscribed-elsewhere", "partitions": [{"partition_index": 0}]},
            ]
            answer = await connection.ask("OffsetDelete", 0, group_id=group_id, topics=topics)
            answers[side] = by_partition(answer)
            assert await committed(connection, group_id, other) == {1: 6}
            assert await member.commit(other, {0: 7}) == [0]
            subscribed = await formed(connection, scene.name(side, "subscribed"), other)
            assert await subscribed.commit(other, {0: 5}) == [0]
            answer = await connection.ask("OffsetDelete", 0, group_id=scene.name(side, "subscribed"), topics=topics[:1])
            answers[f"{side} subscribed"] = by_partition(answer)
            assert await committed(connection, scene.name(side, "subscribed"), other) == {0: 5}
            answers[f"{side} nobody"] = await connection.ask(
                "OffsetDelete", 0, group_id=scene.name(side, "nobody"), topics=topics
            )
    assert answers["through"] == answers["direct"]
    assert answers["through subscribed"] == answers["direct subscribed"]
    assert answers["through nobody"] == answers["direct nobody"]


async def test_offsets_of_groups_without_members_are_deleted_by_the_broker(front: Front) -> None:
    """A group of ours that is Empty, and one that never had a member."""
    scene = Scene(front)
    async with talking(front.muster.bootstrap) as through:
        left, simple = scene.names("through", "left", "simple")
        await emptied(through, left, front.topic, {0: 1, 1: 2})  # its shadow may still be leaving
        await committed_by_nobody(through, simple, front.topic, {0: 1, 1: 2})
        for group_id in (left, simple):
            topics = [{"name": front.topic, "partitions": [{"partition_index": 0}]}]
            answer = await through.ask("OffsetDelete", 0, group_id=group_id, topics=topics)
            assert (answer["error_code"], answer["topics"][0]["partitions"][0]["error_code"]) == (0, 0)
            assert await committed(through, group_id, front.topic) == {1: 2}


async def test_a_group_that_was_just_left_accepts_a_commit_without_a_member(front: Front) -> None:
    """`--reset-offsets` sends such a commit: the leaving shadow does not make the broker refuse it."""
    async with talking(front.muster.bootstrap) as through:
        for _ in range(10):
            group_id = new_name("left")
            await emptied(through, group_id, front.topic, {0: 1})
            await committed_by_nobody(through, group_id, front.topic, {0: 3})
            assert await committed(through, group_id, front.topic) == {0: 3}


@pytest.mark.parametrize("version", range(1, 5))
async def test_settings_of_both_are_described_in_one_answer(front: Front, version: int) -> None:
    """Kafka's unchanged, followed by ours; names select among both; other resources are unchanged."""
    group_id = new_name("described")

    def requested(*names: str) -> dict[str, Any]:
        resources = [
            {"resource_type": GROUP, "resource_name": group_id, "configuration_keys": names or None},
            {"resource_type": TOPIC, "resource_name": front.topic, "configuration_keys": ["cleanup.policy"]},
        ]
        return {"resources": resources, "include_synonyms": True, "include_documentation": True}

    async with talking(front.broker.bootstrap) as direct, talking(front.muster.bootstrap) as through:
        for names in ((), (KAFKAS, OURS), (KAFKAS,), (OURS,), ("members",)):
            theirs = (await direct.ask("DescribeConfigs", version, **requested(*names)))["results"]
            merged = (await through.ask("DescribeConfigs", version, **requested(*names)))["results"]
            by_type = {each["resource_type"]: each for each in merged}
            for each in theirs:
                reported = by_type[each["resource_type"]]
                count = len(each["configs"])
                assert {**reported, "configs": reported["configs"][:count]} == each, names
            added = [each["name"] for each in by_type[GROUP]["configs"]][len(theirs[0]["configs"]) :]
            assert (OURS in added, "members" in added) == (not names or OURS in names, "members" in names)


@pytest.mark.parametrize("version", range(2))
async def test_settings_of_both_are_changed_all_or_none(front: Front, version: int) -> None:
    """For each resource; an error on either side refuses both; other resources are changed upstream."""
    scene = Scene(front)
    mixed, ours, theirs = scene.names("through", "mixed", "ours", "theirs")

    def resource(group_id: str, **settings: str) -> Fields:
        configs = [
            {"name": name.replace("_", "."), "config_operation": SET, "value": value}
            for name, value in settings.items()
        ]
        return {"resource_type": GROUP, "resource_name": group_id, "configs": configs}

    async with talking(front.broker.bootstrap) as direct, talking(front.muster.bootstrap) as through:

        async def alter(*resources: Fields, validate_only: bool = False) -> list[int]:
            answer = await through.ask(
                "IncrementalAlterConfigs", version, resources=list(resources), validate_only=validate_only
            )
            assert [each["resource_name"] for each in answer["responses"]] == [
                each["resource_name"] for each in resources
            ]
            return [each["error_code"] for each in answer["responses"]]

        async def values(group_id: str) -> tuple[str | None, str | None]:
            request = {"resource_type": GROUP, "resource_name": group_id, "configuration_keys": [KAFKAS, OURS]}
            answer = await through.ask(
                "DescribeConfigs", 4, resources=[request], include_synonyms=False, include_documentation=False
            )
            reported = {each["name"]: each["value"] for each in answer["results"][0]["configs"]}
            return reported[KAFKAS], reported[OURS]

        async def until_values(group_id: str, wanted: tuple[str | None, str | None]) -> None:
            """A broker acknowledges a change when the controller has it, and shows it when it has caught up."""
            async with asyncio.timeout(60):
                while await values(group_id) != wanted:  # noqa: ASYNC110 -- another process tells
                    await asyncio.sleep(0.05)

        for group_id in (mixed, ours):
            await formed(through, group_id, front.topic)
        await formed(direct, theirs, front.topic)
        good = {"consumer_session_timeout_ms": "50000", "target_group_size": "3"}
        everything = [resource(ours, target_group_size="2"), resource(mixed, **good)]
        everything.append(resource(theirs, consumer_session_timeout_ms="51000"))
        assert await alter(*everything, validate_only=True) == [0, 0, 0]
        assert [await values(each) for each in (mixed, ours, theirs)] == [("45000", None)] * 3
        assert await alter(*everything) == [0, 0, 0]
        await until_values(mixed, ("50000", "3"))
        await until_values(ours, ("45000", "2"))
        await until_values(theirs, ("51000", None))

        bad_ours = resource(mixed, consumer_session_timeout_ms="52000", target_group_size="0")
        bad_theirs = resource(ours, consumer_session_timeout_ms="none", target_group_size="4")
        assert await alter(bad_ours, bad_theirs) == [40, 40]
        assert await alter(resource(mixed, **good), resource(mixed, target_group_size="5")) == [42, 42]
        assert (await values(mixed), await values(ours)) == (("50000", "3"), ("45000", "2"))
        assert await alter(resource(theirs, target_group_size="3")) == [69], "it has no settings of ours"
