"""Clusters of several brokers, whose nodes are stopped and started."""

from collections.abc import Iterator

import pytest
from confluent_kafka.admin import AdminClient

from muster.drills.service.process import LASTING_PORTS
from tests.brokers.broker import lasting_ports
from tests.brokers.cluster import Cluster, running_cluster
from tests.brokers.probes import WITHIN_S, broker_setting, produced_and_consumed
from tests.brokers.readiness import brokers_named_by, node_ids_named_by

ODD = 1001


@pytest.fixture(scope="module")
def own_cluster() -> Iterator[Cluster]:
    """A cluster whose nodes may be killed, one of them with an id far from the others."""
    with running_cluster(node_ids=(1, 2, ODD), settings={"num.partitions": "4"}) as cluster:
        yield cluster


class TestShared:
    """The cluster that tests share."""

    def test_each_node_names_all_at_their_own_addresses(self, kafka_cluster: Cluster) -> None:
        """For each node."""
        assert kafka_cluster.nodes == (1, 2, 3)
        addresses = {kafka_cluster.address(node) for node in kafka_cluster.nodes}
        assert len(addresses) == 3
        for address in addresses:
            assert set(brokers_named_by(address)) == addresses
            assert node_ids_named_by(address) == {1, 2, 3}
        assert set(kafka_cluster.bootstrap.split(",")) == addresses

    def test_topics_have_a_replica_on_each_node(self, kafka_cluster: Cluster) -> None:
        """A new topic, and the groups' offsets."""
        assert produced_and_consumed(kafka_cluster.bootstrap) == b"hello"
        topics = AdminClient({"bootstrap.servers": kafka_cluster.bootstrap}).list_topics(timeout=WITHIN_S).topics
        replicas = {
            tuple(sorted(partition.replicas)) for topic in topics.values() for partition in topic.partitions.values()
        }
        assert "__consumer_offsets" in topics
        assert replicas == {(1, 2, 3)}


class TestNodes:
    """Nodes that are stopped and started."""

    def test_the_others_continue_when_one_is_killed_and_it_returns(self, own_cluster: Cluster) -> None:
        """A group and its offsets survive the loss of any node; the restarted one has its id and its address."""
        address = own_cluster.address(2)
        own_cluster.kill(2)
        own_cluster.wait_until_brokers_are({1, ODD})
        assert own_cluster.serving == {1, ODD}
        assert produced_and_consumed(own_cluster.bootstrap) == b"hello"
        own_cluster.start(2)
        assert own_cluster.address(2) == address
        assert node_ids_named_by(address) == {1, 2, ODD}

    def test_a_node_that_is_stopped_is_waited_for(self, own_cluster: Cluster) -> None:
        """It hands over its leaderships, so its absence is noticed at once."""
        own_cluster.stop(ODD)
        assert "shut down completed" in own_cluster.said(ODD)
        own_cluster.wait_until_brokers_are({1, 2})
        own_cluster.start(ODD)
        assert own_cluster.serving == {1, 2, ODD}

    def test_settings_of_the_callers_are_in_force(self, own_cluster: Cluster) -> None:
        """In addition to those of all tests and those of clusters."""
        names = ("num.partitions", "group.initial.rebalance.delay.ms", "min.insync.replicas")
        assert [broker_setting(own_cluster.bootstrap, name) for name in names] == ["4", "50", "2"]

    def test_ports_last(self) -> None:
        """They are all different, and none is an ephemeral port."""
        ports = lasting_ports(12)
        assert len(set(ports)) == 12
        assert set(ports) <= set(LASTING_PORTS)
