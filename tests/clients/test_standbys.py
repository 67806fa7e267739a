"""Hot standbys with consumers of each library: a member is lost, and the others keep their partitions."""

from pathlib import Path
from typing import ClassVar

import pytest

from tests.clients.conftest import PARTITIONS, TOPIC
from tests.clients.consumers import Aiokafka, Confluent, RunningConsumer
from tests.clients.crew import Crew, crew
from tests.clients.test_planned_membership import ask, until_standing
from tests.muster_process import MusterProcess, running_muster, sqlite_log
from tests.waiting import until_so

pytestmark = pytest.mark.clients


def with_standbys(group: Crew, active: str, standbys: str) -> dict[str, RunningConsumer]:
    """Static members that share the topic, and standbys."""
    consumers = {name: group.add(name) for name in active}
    group.until_shared()
    ask(group, lambda admin: admin.set_target_group_size(group.group_id, len(active)))
    for name in standbys:  # one after another: the first to join is called first
        consumers[name] = group.add(name)
        until_told_of_nothing(consumers[name])
    until_standing(group, active=len(active), standby=len(standbys))
    return consumers


def until_told_of_nothing(standby: RunningConsumer) -> None:
    until_so(lambda: standby.assignments == 1, lambda: "it was not told that it has nothing")
    assert standby.assigned == frozenset()


def leader(group: Crew) -> str:
    members = ask(group, lambda admin: admin.list_members(group.group_id))
    (name,) = (str(member.group_instance_id) for member in members if member.is_leader)
    return name


def lose(group: Crew, *lost: RunningConsumer) -> None:
    """They end without leaving, and are removed at once, before their sessions end."""
    for consumer in lost:
        group.close(consumer)
    names = [str(consumer.instance) for consumer in lost]
    ask(group, lambda admin: admin.remove_members_from_group(group.group_id, names))


def until_taken_over(standbys: list[RunningConsumer], shares: set[frozenset[int]]) -> None:
    until_so(lambda: {s.assigned for s in standbys} == shares, lambda: ([s.assigned for s in standbys], shares))


def test_a_lost_member_is_replaced_without_disturbing_others(
    muster: MusterProcess, library: type[RunningConsumer]
) -> None:
    """Same generation, no assignment of the others; the standby commits; the lost one returns as a standby."""
    with crew(muster, library) as group:
        consumers = with_standbys(group, "abc", "s")
        generation = group.generation
        (name, *_) = [each for each in "abc" if each != leader(group)]
        staying = [consumers[each] for each in "abc" if each != name]
        seen = [consumer.assignments for consumer in staying]
        lose(group, consumers[name])
        until_taken_over([consumers["s"]], {consumers[name].assigned})
        partition = min(consumers["s"].assigned)
        consumers["s"].commit(partition, 5)
        assert consumers["s"].committed(partition) == 5
        back = group.add(name)
        until_standing(group, active=3, standby=1)
        until_told_of_nothing(back)
        assert [consumer.assignments for consumer in staying] == seen
        assert group.generation == generation


def test_two_lost_at_once_are_replaced(muster: MusterProcess, library: type[RunningConsumer]) -> None:
    """Two standbys replace them, each with the share of one of them."""
    with crew(muster, library) as group:
        consumers = with_standbys(group, "abc", "st")
        generation, stays = group.generation, leader(group)
        lost = [consumers[each] for each in "abc" if each != stays]
        seen = consumers[stays].assignments
        lose(group, *lost)
        until_taken_over([consumers["s"], consumers["t"]], {each.assigned for each in lost})
        assert (consumers[stays].assignments, group.generation) == (seen, generation)


def test_a_lost_leader_is_replaced(muster: MusterProcess, library: type[RunningConsumer]) -> None:
    """Clients that cannot skip the assignment (JoinGroup below v9) need a rebalance for that; all get their share."""
    with crew(muster, library) as group:
        consumers = with_standbys(group, "ab", "s")
        lose(group, consumers[leader(group)])
        group.until_shared()
        assert consumers["s"].assigned


def test_a_standby_that_dies_when_it_is_called_is_replaced(
    muster: MusterProcess, library: type[RunningConsumer]
) -> None:
    """The next one takes over, still without a rebalance."""
    with crew(muster, library) as group:
        consumers = with_standbys(group, "ab", "st")
        generation, stays = group.generation, leader(group)
        (lost,) = [consumers[each] for each in "ab" if each != stays]
        group.close(consumers["s"])
        lose(group, lost)
        until_standing(group, active=1, called=1, standby=1)
        ask(group, lambda admin: admin.remove_members_from_group(group.group_id, ["s"]))
        until_taken_over([consumers["t"]], {lost.assigned})
        assert group.generation == generation


class Cooperative(Confluent):
    """librdkafka with the incremental protocol: a rebalance callback only has the changes."""

    OTHER_CONFIG: ClassVar = {"partition.assignment.strategy": "cooperative-sticky"}

    def _poll(self) -> None:
        super()._poll()
        self.assigned = frozenset(each.partition for each in self._consumer.assignment())


def test_a_cooperative_standby_takes_over(muster: MusterProcess) -> None:
    """Its subscription has its generation, so its rejoin differs from its join."""
    with crew(muster, Cooperative) as group:
        consumers = with_standbys(group, "ab", "s")
        triggers = group.triggers
        (lost,) = [consumers[each] for each in "ab" if each != leader(group)]
        share = lost.assigned
        lose(group, lost)
        until_taken_over([consumers["s"]], {share})
        assert group.triggers == triggers


class AttentiveConfluent(Confluent):
    """Checks for new partitions every half second."""

    OTHER_CONFIG: ClassVar = {"topic.metadata.refresh.interval.ms": 500}


class AttentiveAiokafka(Aiokafka):
    """Checks for new partitions every half second."""

    OTHER_CONFIG: ClassVar = {"metadata_max_age_ms": 500}


@pytest.mark.parametrize("attentive", [AttentiveConfluent, AttentiveAiokafka])
def test_partitions_that_are_added_after_a_swap_are_shared(attentive: type[RunningConsumer], tmp_path: Path) -> None:
    """The leader notices; the member that took over gets its share of them, and standbys get none."""
    log = sqlite_log(tmp_path)
    with running_muster(log=log, topics=[f"{TOPIC}:{PARTITIONS}"]) as muster, crew(muster, attentive) as group:
        consumers = with_standbys(group, "ab", "st")
        (name,) = [each for each in "ab" if each != leader(group)]
        lose(group, consumers[name])
        until_taken_over([consumers["s"]], {consumers[name].assigned})
        muster.restart(topics=[f"{TOPIC}:{2 * PARTITIONS}"])
        until_so(lambda: sorted(map(len, group.shares())) == [0, PARTITIONS, PARTITIONS], group.shares)
        assert {partition for share in group.shares() for partition in share} == set(range(2 * PARTITIONS))
        assert len(consumers["s"].assigned) == PARTITIONS
