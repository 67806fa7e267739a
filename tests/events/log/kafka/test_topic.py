"""Finding and creating the event topic, and reading its configs, on a scripted cluster."""

from collections.abc import Mapping
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from kio.schema.errors import ErrorCode

from muster.events.kafka.security import NOT_SECURED
from muster.events.log.base import LogError, LogMismatch, LogUnavailable
from muster.events.log.kafka.client.link import KafkaLink, Timeouts
from muster.events.log.kafka.client.settings import BROKER_CONFIGS, TopicFacts, TopicPlan
from muster.events.log.kafka.topic import (
    check_topic,
    cleanup_policy,
    create_topic,
    created_topic_facts,
    topic_facts,
    topic_flaws,
)
from tests.events.log.kafka.client.test_metadata import MISSING, answer, topic
from tests.events.log.kafka.kafka_messages import request_in

FACTS = TopicFacts(partitions=2, replication=2, cluster_id="c", topic_id="AAAAAAAAAAAAAAAAAAAAAQ")
PLAN = TopicPlan(
    name="t", partitions=2, replication=2, audit_window_ms=int(timedelta(days=7).total_seconds() * 1000),
    batch_bytes_max=2**26,
)  # fmt: skip


def described(kind: int, name: str, configs: Mapping[str, str | None], error: ErrorCode = ErrorCode.none) -> Any:
    """A result in a response to DescribeConfigs."""
    entries = [SimpleNamespace(name=key, value=value) for key, value in configs.items()]
    return SimpleNamespace(
        error_code=error, error_message="why not", resource_type=kind, resource_name=name, configs=entries
    )


class Cluster(KafkaLink):
    """Two brokers; a created topic is found at the second look."""

    def __init__(self, error: ErrorCode = ErrorCode.none, *, is_there: bool = False) -> None:
        super().__init__([], NOT_SECURED, Timeouts())
        self.created: list[Any] = []
        self.asked: list[tuple[int, Any]] = []
        self._error = error
        self._looks = 2 if is_there else 0
        self._apply_metadata(answer())

    async def metadata(self, topics: Any) -> Any:
        if self._looks or self.created:
            self._looks += 1
        return answer(topic((1, 0), (2, 0)) if self._looks > 1 else MISSING)

    async def ask_any(self, request: Any) -> Any:
        if hasattr(request_in(request), "resources"):
            return await self.ask(1, request)
        (wanted,) = request_in(request).topics
        configs = [(config.name, config.value) for config in wanted.configs]
        assert wanted.assignments == ()
        self.created.append((wanted.name, wanted.num_partitions, wanted.replication_factor, configs))
        return SimpleNamespace(topics=[SimpleNamespace(error_code=self._error, error_message="why not")])

    async def ask(self, node_id: int, request: Any, *, lane: object = 0, timeout_ms: int | None = None) -> Any:
        (resource,) = request_in(request).resources
        kind, name = resource.resource_type, resource.resource_name
        self.asked.append((node_id, (kind, name, resource.configuration_keys)))
        configs = PLAN.configs() if name == "t" else {"transactional.id.expiration.ms": "604800000"}
        return SimpleNamespace(results=[described(kind, name, {**configs})])


class Refusing(Cluster):
    """All of them refuse to describe configs."""

    async def ask(self, node_id: int, request: Any, *, lane: object = 0, timeout_ms: int | None = None) -> Any:
        return SimpleNamespace(results=[described(2, "t", {"cleanup.policy": "delete"}, self._error)])


async def create(link: Cluster) -> bool:
    return await create_topic(link, "t", PLAN.configs(), partitions=2, replication=None, timeout_ms=5_000)


async def test_a_topic_is_looked_up_without_creating_it() -> None:
    """Whatever it is like."""
    link = Cluster(is_there=True)
    assert await topic_facts(link, "t", timeout_ms=5_000) == FACTS
    assert await topic_facts(Cluster(), "t", timeout_ms=5_000) is None
    assert link.created == []


@pytest.mark.parametrize(("leader", "is_one"), [(0, True), (1, True), (-1, False)])
async def test_a_partition_without_a_leader_is_waited_for(leader: int, is_one: bool) -> None:
    """Brokers are numbered from 0; -1 means none."""

    class Led(Cluster):
        async def metadata(self, topics: Any) -> Any:
            return answer(topic((leader, 0), (1, 0)), nodes=(0, 1))

    requested = topic_facts(Led(), "t", timeout_ms=0)
    if is_one:
        assert await requested == FACTS
    else:
        with pytest.raises(LogUnavailable, match="a partition of topic t has no leader"):
            await requested


async def test_a_topic_of_brokers_that_know_no_ids_has_none() -> None:
    """Those before Kafka 2.8."""

    class WithoutIds(Cluster):
        async def metadata(self, topics: Any) -> Any:
            return answer(topic((1, 0), (2, 0), topic_id=None))

    assert await topic_facts(WithoutIds(), "t", timeout_ms=5_000) == msgspec.structs.replace(FACTS, topic_id=None)


async def test_a_topic_that_is_missing_is_made() -> None:
    """With as many replicas as there are brokers, up to three; it is known when a broker knows it."""
    link = Cluster()
    assert await create(link)
    ((name, partitions, replication, configs),) = link.created
    assert (name, partitions, replication) == ("t", 2, 2)
    assert dict(configs) == {"min.insync.replicas": "1", **PLAN.configs()}
    assert await created_topic_facts(link, "t", timeout_ms=5_000) == FACTS


@pytest.mark.parametrize(("brokers", "replicas", "in_sync"), [(1, 1, "1"), (2, 2, "1"), (3, 3, "2"), (5, 3, "2")])
async def test_a_topic_has_a_replica_on_each_of_three_brokers(brokers: int, replicas: int, in_sync: str) -> None:
    """One may be down; 8 partitions by default."""
    link = Cluster()
    link._apply_metadata(answer(nodes=tuple(range(brokers))))
    assert await create_topic(link, "t", {"a": "b"}, partitions=None, replication=None, timeout_ms=5_000)
    configs = [("min.insync.replicas", in_sync), ("a", "b")]
    assert link.created == [("t", 8, replicas, configs)]


@pytest.mark.parametrize(("replicas", "in_sync"), [(1, "1"), (2, "1"), (5, "4")])
async def test_a_topic_has_as_many_replicas_as_are_wanted(replicas: int, in_sync: str) -> None:
    """One of them may be down; given configs count."""
    for configs, reported in (({}, in_sync), ({"min.insync.replicas": "7"}, "7")):
        link = Cluster()
        assert await create_topic(link, "t", configs, partitions=3, replication=replicas, timeout_ms=5_000)
        assert link.created == [("t", 3, replicas, [("min.insync.replicas", reported)])]


async def test_a_topic_that_another_process_just_created_is_not_reported_as_ours() -> None:
    """It is used anyway."""
    link = Cluster(ErrorCode.topic_already_exists)
    assert not await create(link)
    assert await created_topic_facts(link, "t", timeout_ms=5_000) == FACTS


async def test_a_topic_that_may_not_be_created_is_reported() -> None:
    """The required right, and the broker's message."""
    with pytest.raises(LogMismatch, match=r"topic t cannot be created: .*Allow CREATE on TOPIC t.*: why not"):
        await create(Cluster(ErrorCode.topic_authorization_failed))


@pytest.mark.parametrize("error", [ErrorCode.topic_authorization_failed, ErrorCode.cluster_authorization_failed])
async def test_configs_that_may_not_be_read_are_none(error: ErrorCode) -> None:
    """They are warned of, and no reason not to begin."""
    guarantees = await check_topic(Refusing(error), PLAN, FACTS, is_ours=True, timeout_ms=5_000)
    assert [warning.split(" on ")[1] for warning in guarantees.warnings] == [
        "TOPIC t, so the configs there were not checked",
        "CLUSTER, so the configs there were not checked",
    ]
    assert await cleanup_policy(Refusing(error), "t", timeout_ms=5_000) is None


async def test_configs_that_cannot_be_read_for_another_reason_are_reported() -> None:
    with pytest.raises(LogUnavailable, match="the configs of t cannot be read: INVALID_REQUEST: why not"):
        await cleanup_policy(Refusing(ErrorCode.invalid_request), "t", timeout_ms=5_000)


async def test_the_cleanup_policy_of_a_topic_is_read() -> None:
    assert await cleanup_policy(Cluster(is_there=True), "t", timeout_ms=5_000) == "compact"


async def test_all_configs_of_the_topic_are_read_and_those_of_each_broker_that_matter() -> None:
    """A broker has some hundreds."""
    link = Cluster(is_there=True)
    await check_topic(link, PLAN, FACTS, is_ours=True, timeout_ms=5_000)
    of_brokers = tuple(BROKER_CONFIGS)
    assert link.asked == [(1, (2, "t", None)), (1, (4, "1", of_brokers)), (2, (4, "2", of_brokers))]


CONFIGS = {**PLAN.configs()}


@pytest.mark.parametrize(
    ("results", "said"),
    [
        ([], "answered with 0 results"),
        (None, "answered with 0 results"),
        ([described(2, "t", CONFIGS)] * 2, "answered with 2 results"),
        ([described(2, "other", CONFIGS)], "with those of 'other'"),
        ([described(4, "t", CONFIGS)], "with those of 't'"),
        ([described(2, "t", {}, ErrorCode.unknown_server_error)], r"given up after .* UNKNOWN_SERVER_ERROR \(-1\)"),
    ],
)
async def test_an_odd_answer_about_configs_is_an_error_of_the_log(results: Any, said: str) -> None:
    """It is a named error, so that the caller continues, or reports why not."""

    class Odd(Cluster):
        async def ask(self, node_id: int, request: Any, *, lane: object = 0, timeout_ms: int | None = None) -> Any:
            return SimpleNamespace(results=results)

    with pytest.raises(LogError, match=said):
        await topic_flaws(Odd(is_there=True), PLAN, FACTS, timeout_ms=50)


@pytest.mark.parametrize("configs", [{}, {"cleanup.policy": None}])
async def test_configs_without_a_value_are_as_if_they_were_not_there(configs: Mapping[str, str | None]) -> None:
    class Empty(Cluster):
        async def ask(self, node_id: int, request: Any, *, lane: object = 0, timeout_ms: int | None = None) -> Any:
            (resource,) = request_in(request).resources
            return SimpleNamespace(results=[described(resource.resource_type, resource.resource_name, configs)])

    flaws = await topic_flaws(Empty(is_there=True), PLAN, FACTS, timeout_ms=5_000)
    assert [flaw.split(" on ")[1] for flaw in flaws] == [
        "TOPIC t, so the configs there were not checked",
        "CLUSTER, so the configs there were not checked",
    ]


async def test_an_odd_answer_about_the_topic_is_an_error_of_the_log() -> None:
    """It names two topics, none, or no partition."""

    class Odd(Cluster):
        topics: Any = ()

        async def metadata(self, topics: Any) -> Any:
            return SimpleNamespace(topics=self.topics, cluster_id="c")

    link = Odd()
    for topics in ((), (topic((1, 0)), topic((1, 0))), (topic(),)):
        link.topics = topics
        with pytest.raises(LogUnavailable):
            await topic_facts(link, "t", timeout_ms=50)
