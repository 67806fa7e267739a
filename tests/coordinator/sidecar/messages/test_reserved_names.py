"""Reserved names are refused through the relay: scripted brokers record what reaches them."""

from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any, Final
from uuid import UUID

import pytest
from kio.index import load_request_schema
from kio.schema.errors import ErrorCode

from muster.coordinator.sidecar.apis import produce_and_txn
from muster.coordinator.sidecar.apis.produce_and_txn import REFUSED_TXN_BYTES_MAX
from muster.coordinator.sidecar.messages.reserved_names import ReservedNames
from muster.coordinator.sidecar.relay.conversation import FIRST_BYTES_MAX
from muster.coordinator.sidecar.relay.intercept import SidecarApi
from muster.coordinator.wire.api import Fault
from tests.coordinator.kio_client import filled, with_length
from tests.coordinator.sidecar.apis.test_offset_commit import Stage
from tests.coordinator.sidecar.messages.produced import Topic, produced
from tests.coordinator.sidecar.relaying import Client, Relay, relaying
from tests.coordinator.sidecar.scripted_broker import (
    ScriptedBroker,
    asking,
    read_response,
    request,
    scripted_broker,
)
from tests.waiting import until

EVENTS, EVENTS_ID = "__muster_events", UUID("00000000-0000-4000-8000-0000000e7e27")
OURS: Final = Topic(name=EVENTS, topic_id=EVENTS_ID, records=(b"forged", None))
OTHERS: Final = Topic(name="orders", topic_id=UUID(int=7), records=(b"r" * 3_000,))
PRODUCE, FETCH = 0, 1
DENIED: Final = ErrorCode.transactional_id_authorization_failed


@asynccontextmanager
async def listening(*, event_topic: str | None = EVENTS) -> AsyncIterator[tuple[ScriptedBroker, Relay, Client]]:
    """In front of the cluster that has the log."""
    reserved = ReservedNames(None) if event_topic is None else ReservedNames(event_topic)
    reserved.update_ids({EVENTS: EVENTS_ID})

    def handled(relay: Relay) -> Iterable[SidecarApi]:
        return (*produce_and_txn.apis(reserved), *Stage(reserved).apis(relay))

    async with scripted_broker() as broker, relaying({1: broker}, more=handled) as relay:
        yield broker, relay, await relay.connect(1)


def asks(key: int, version: int, fields: Mapping[str, Any]) -> bytes:
    """Fields by kio's names, some of which a version may lack."""
    return asking(filled(load_request_schema(key, version), fields))


@pytest.mark.parametrize("version", range(3, 14))
async def test_alone_in_its_request_the_topic_is_refused_in_its_turn(version: int) -> None:
    """The broker does not get the request; earlier requests are answered before it."""
    async with listening() as (broker, _, client):
        client.send(request(FETCH, 12, 1), with_length(produced(version, [OURS])), request(FETCH, 12, 2))
        assert (await client.answer())[0] == 1
        number, payload = await client.answer()
        (topic,) = read_response(PRODUCE, version, payload).responses
        assert number == 7
        assert getattr(topic, "name", EVENTS) == EVENTS
        assert getattr(topic, "topic_id", EVENTS_ID) == EVENTS_ID
        reported = [(each.index, each.error_code) for each in topic.partition_responses]
        assert reported == [(0, ErrorCode.invalid_topic_exception), (1, ErrorCode.invalid_topic_exception)]
        assert (await client.answer())[0] == 2
        assert broker.keys_asked() == [FETCH, FETCH]


@pytest.mark.parametrize("version", range(14))
@pytest.mark.parametrize("acks", [-1, 0])
async def test_among_others_the_broker_gets_no_whole_request(version: int, acks: int) -> None:
    async with listening() as (broker, relay, client):
        await client.ask(request(FETCH, 12, 1))
        client.send(with_length(produced(version, [OTHERS, OURS, OTHERS], acks=acks)))
        assert await client.rest() == b""
        await until(lambda: broker.open_connections == 0)
        assert broker.keys_asked() == [FETCH]
        assert relay.metrics.protocol_errors[Fault.REFUSED_PRODUCE] == 1


@pytest.mark.parametrize("version", [3, 9, 13])
async def test_a_produce_without_acks_is_refused_by_disconnecting(version: int) -> None:
    async with listening() as (broker, _, client):
        client.send(with_length(produced(version, [OURS], acks=0)))
        assert await client.rest() == b""
        assert broker.keys_asked() == []


async def test_a_stream_is_cut_where_the_topic_is_found() -> None:
    """The broker may have got the records before it, but never the end of the request."""
    async with listening() as (broker, _, client):
        large = Topic(name="large", topic_id=None, records=(b"x" * 900_000,))
        client.send(with_length(produced(9, [large, OURS])))
        assert await client.rest() == b""
        await until(lambda: broker.open_connections == 0)
        assert broker.keys_asked() == []


@pytest.mark.parametrize("version", range(3, 14))
@pytest.mark.parametrize("event_topic", [EVENTS, None])
async def test_other_topics_pass_and_all_do_where_the_log_is_elsewhere(version: int, event_topic: str | None) -> None:
    async with listening(event_topic=event_topic) as (broker, _, client):
        topics = [OTHERS, OTHERS] if event_topic else [OTHERS, OURS]
        for acks in (0, -1):
            client.send(with_length(produced(version, topics, acks=acks)))
        await until(lambda: len(broker.asked) == 2)
        assert broker.asked[0].frame == produced(version, topics, acks=0)
        assert broker.asked[1].frame == produced(version, topics)


# ---- transactional ids ---------------------------------------------------------------------------------

PRODUCER: Final = {"producer_id": 5, "producer_epoch": 3}
TXN_OFFSET_COMMIT: Final = 28
VERSIONS: Final = {22: 7, 24: 4, 25: 5, 26: 6, TXN_OFFSET_COMMIT: 6}
TRANSACTIONAL: Final = [(key, version) for key, count in VERSIONS.items() for version in range(count)]


def transactional(key: int, version: int, transactional_id: str | None) -> bytes:
    """A request for each of these APIs."""
    fields = {
        "transactional_id": transactional_id,
        "transaction_timeout": timedelta(seconds=1),
        "enable2_pc": False,
        "keep_prepared_txn": False,
        "group_id": "orders",
        "committed": True,
        **PRODUCER,
        "v3_and_below_transactional_id": transactional_id,
        "v3_and_below_producer_id": 5,
        "v3_and_below_producer_epoch": 3,
        "v3_and_below_topics": [{"name": "orders", "partitions": (0, 4)}],
        "member_id": "",
        "generation_id": -1,
        "group_instance_id": None,
        "topics": [{"name": "orders", "partitions": [_committed(0), _committed(4)]}],
    }
    return asks(key, version, fields)


def _committed(partition: int) -> dict[str, Any]:
    return {
        "partition_index": partition,
        "committed_offset": 1,
        "committed_leader_epoch": -1,
        "committed_metadata": None,
    }


def errors_of(key: int, answer: Any) -> list[ErrorCode]:
    """All errors of a response."""
    if key == TXN_OFFSET_COMMIT:
        (topic,) = answer.topics
        assert [each.partition_index for each in topic.partitions] == [0, 4]
        return [each.error_code for each in topic.partitions]
    if key != 24:
        return [answer.error_code]
    (topic,) = answer.results_by_topic_v3_and_below
    assert [each.partition_index for each in topic.results_by_partition] == [0, 4]
    return [each.partition_error_code for each in topic.results_by_partition]


@pytest.mark.parametrize(("key", "version"), TRANSACTIONAL)
async def test_an_owners_transactional_id_is_its_own(key: int, version: int) -> None:
    async with listening() as (broker, _, client):
        for name in (f"muster-{EVENTS}-0", f"muster-{EVENTS}-49", f"muster-{EVENTS}_offsets-7"):
            answer = read_response(key, version, await client.ask(transactional(key, version, name)))
            assert set(errors_of(key, answer)) == {DENIED}
        assert broker.keys_asked() == []


@pytest.mark.parametrize(("key", "version"), TRANSACTIONAL)
async def test_every_other_one_is_the_brokers_to_judge(key: int, version: int) -> None:
    """Including those that only resemble it, and none at all: an idempotent producer has none.

    A TxnOffsetCommit without a member, as here, is relayed unchanged; test_shadow_commits.py has the others.
    """
    names = ["orders", "muster-orders-0", f"muster-{EVENTS}-", f"muster-{EVENTS}-00", f"muster-{EVENTS}-1x"]
    async with listening() as (broker, _, client):
        sent = [transactional(key, version, name) for name in (*names, *([None] if key == 22 else []))]
        client.send(*sent)
        await until(lambda: len(broker.asked) == len(sent))
        assert [requested.frame for requested in broker.asked] == [frame[4:] for frame in sent]


async def test_partitions_are_added_as_clients_do_it_not_as_brokers_do() -> None:
    """From v4 on a request adds partitions for several producers at once, which needs the cluster's permission."""
    async with listening() as (broker, relay, client):
        client.send(request(24, 4, 1))
        assert await client.rest() == b""
        assert relay.metrics.protocol_errors[Fault.UNSUPPORTED_VERSION] == 1
        assert broker.keys_asked() == []


async def test_a_request_that_no_client_needs_is_refused_at_any_length() -> None:
    async with listening() as (_, relay, client):
        frame = transactional(22, 0, f"muster-{EVENTS}-0")[4:]
        client.send((REFUSED_TXN_BYTES_MAX + 1).to_bytes(4, "big") + frame + bytes(FIRST_BYTES_MAX))
        assert await client.rest() == b""
        assert relay.metrics.protocol_errors[Fault.OVERSIZED_FRAME] == 1


# ---- the group of the owners -----------------------------------------------------------------------------


@pytest.mark.parametrize(("event_topic", "is_refused"), [(EVENTS, True), ("another", False), (None, False)])
async def test_the_owners_group_is_their_own(event_topic: str | None, is_refused: bool) -> None:
    """No client can join it, or remove a member from it; another group's name may be similar."""
    names = ReservedNames(event_topic)
    assert names.is_group(f"muster-{EVENTS}-owners") is is_refused
    assert not names.is_group("orders")
    names.settle(is_here=False)
    assert not names.is_group(f"muster-{EVENTS}-owners")
