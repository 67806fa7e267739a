"""A gateway: two sidecars of one log at one address, as behind a load balancer; clients only know that address."""

import secrets
from contextlib import ExitStack
from pathlib import Path
from uuid import uuid4

import pytest

from tests.brokers.broker import HOST, Broker, lasting_base, lasting_ports
from tests.clients.consumers import Confluent
from tests.clients.crew import ALL, crew
from tests.clients.through_sidecar.sidecar import assert_is_owned, new_topic, offsets_at, produce
from tests.clients.through_sidecar.test_consumers import until_consumed
from tests.sharing_processes import sharing_sidecar, until_shared

pytestmark = [pytest.mark.clients, pytest.mark.broker]

LOG_PARTITIONS = 4


def test_whichever_process_of_a_gateway_dies_no_group_rebalances(kafka_broker: Broker, tmp_path: Path) -> None:
    """Its clients reconnect to the same address and get the other one, where their groups continue."""
    brokers, topic = kafka_broker.bootstrap, new_topic(kafka_broker.bootstrap)
    log, secret = f"kafka://{brokers}/gateway-{uuid4().hex[:8]}", tmp_path / "secret"
    secret.write_text(secrets.token_hex(32))
    (port,), base_port = lasting_ports(1), lasting_base(1)
    at_one = ["--reuse-port", "--listen", f"{HOST}:{port}", "--broker-base-port", str(base_port)]
    with ExitStack() as stack:
        both = [
            stack.enter_context(
                sharing_sidecar(brokers, log, node_id, secret=secret, partitions=LOG_PARTITIONS, options=at_one)
            )
            for node_id in (1, 2)
        ]
        until_shared(*both, partitions=LOG_PARTITIONS)
        group = stack.enter_context(crew(both[0], Confluent, topic))
        consumers = [group.add(name) for name in ("one", "two")]
        group.until_shared()
        assert_is_owned(brokers, group.group_id)
        generation, assignments = group.generation, [each.assignments for each in consumers]
        for offset, (killed, survivor) in enumerate([both, both[::-1]], 1):
            killed.kill()
            until_shared(survivor, partitions=LOG_PARTITIONS)
            produce(brokers, topic, f"without {offset}")
            until_consumed(consumers, f"without {offset}")
            for consumer in consumers:
                for partition in consumer.assigned:
                    consumer.commit(partition, offset)
            assert offsets_at(brokers, group.group_id, topic) == dict.fromkeys(ALL, offset)
            assert (group.generation, [each.assignments for each in consumers]) == (generation, assignments)
            killed.start()
            until_shared(*both, partitions=LOG_PARTITIONS)
