"""Clients without instance ids in groups with static members: as followers, and as leaders (KAFKA-14422)."""

import re
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from typing import Any, ClassVar
from uuid import uuid4

import pytest

from tests.clients.conftest import PARTITIONS, TOPIC
from tests.clients.consumers import Aiokafka, Confluent, KafkaPython, RunningConsumer
from tests.clients.crew import ALL
from tests.clients.probe import generation_of, remove_static_members, until_stable
from tests.muster_process import MusterProcess, running_muster
from tests.waiting import until_so

pytestmark = pytest.mark.clients


class Of2016(KafkaPython):
    """kafka-python's requests to a broker of 2016: no rebalance timeout yet (JoinGroup v0)."""

    OTHER_CONFIG: ClassVar[Mapping[str, Any]] = {"api_version": (0, 10, 0)}


class Of2017(KafkaPython):
    """The same with a broker of 2017 (JoinGroup v2)."""

    OTHER_CONFIG: ClassVar[Mapping[str, Any]] = {"api_version": (1, 0)}


@pytest.fixture(scope="module")
def muster() -> Iterator[MusterProcess]:
    """A process whose metrics show the requested versions."""
    with running_muster(
        log="memory:", topics=[f"{TOPIC}:{PARTITIONS}"], options=["--metrics", "127.0.0.1:0"]
    ) as process:
        yield process


def join_versions(muster: MusterProcess) -> set[int]:
    """The versions of JoinGroup used so far."""
    used = re.findall(r'muster_requests_total\{api="JoinGroup",version="(\d+)"\} (\S+)', muster.asked("/metrics"))
    return {int(version) for version, count in used if float(count) > 0}


def until_shared(muster: MusterProcess, group_id: str, consumers: list[RunningConsumer]) -> None:
    """Wait until they have even shares, and no partition has another owner."""

    def shared() -> bool:
        assert [consumer.error for consumer in consumers if consumer.error] == []
        shares = [consumer.assigned for consumer in consumers]
        return frozenset().union(*shares) == ALL and {len(share) for share in shares} == {PARTITIONS // len(consumers)}

    until_so(shared, lambda: [sorted(consumer.assigned) for consumer in consumers])
    until_stable(muster.bootstrap, group_id, members=len(consumers))


@pytest.mark.parametrize(
    ("old", "version", "static"),
    [(Of2016, 0, Confluent), (Of2017, 2, Aiokafka), (Of2017, 2, KafkaPython)],
    ids=["v0-Confluent", "v2-Aiokafka", "v2-KafkaPython"],
)
def test_an_old_leader_assigns_to_static_members(
    muster: MusterProcess, old: type[RunningConsumer], version: int, static: type[RunningConsumer]
) -> None:
    """It was first, so it leads: all get their share, static restarts are absorbed, and its end is noticed."""
    group_id = f"led-by-{old.__name__.lower()}-{uuid4().hex[:8]}"
    with ExitStack() as stack:

        def start(library: type[RunningConsumer], instance: str | None) -> RunningConsumer:
            consumer = library(muster.bootstrap, group_id, TOPIC, instance=instance).start()
            stack.callback(consumer.end)
            return consumer

        leader = start(old, None)
        until_so(lambda: leader.assigned == ALL, lambda: (leader.assigned, leader.error))
        assert version in join_versions(muster)
        a, b = start(static, "a"), start(static, "b")
        until_shared(muster, group_id, [leader, a, b])
        generation = generation_of(muster.bootstrap, group_id)
        share, noticed = a.assigned, (leader.assignments, b.assignments)
        a.close()
        a = start(static, "a")
        until_so(lambda: a.assigned == share, lambda: (a.assigned, a.error))
        assert generation_of(muster.bootstrap, group_id) == generation
        assert (leader.assignments, b.assignments) == noticed
        leader.close()
        until_shared(muster, group_id, [a, b])
        b.close()
        assert remove_static_members(muster.bootstrap, group_id, "b") == [0]
        until_so(lambda: a.assigned == ALL, lambda: a.assigned)
        follower = start(old, None)
        until_shared(muster, group_id, [a, follower])
        for consumer in (a, follower):
            consumer.commit(min(consumer.assigned), 5)
