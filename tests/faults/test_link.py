"""The way to the brokers alone: what its requests come to when a broker hangs, refuses, resets or loses an answer."""

import asyncio
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from itertools import pairwise

import pytest

from muster.events.kafka.addresses import ADDRESSES_MAX, BrokerAddress, KnownBrokers
from muster.events.kafka.errors import TryAgain
from muster.events.kafka.requests import api_versions
from muster.events.kafka.security import NOT_SECURED, KafkaSecurity
from muster.events.log.base import LogUnavailable
from muster.events.log.kafka.client.errors import RETRY_PAUSE_MAX_S, RETRY_PAUSE_MIN_S, retry
from muster.events.log.kafka.client.link import KafkaLink, Timeouts
from muster.events.log.kafka.producer import KafkaWriter, WriterConfig, claim
from muster.events.log.kafka.reader import read
from muster.events.records import Record
from tests.faults.cluster import FETCH, HOST, INIT_PRODUCER_ID, METADATA, PRODUCE, FakeCluster
from tests.faults.network import Connection, NetworkLoop
from tests.faults.process import TOPIC, seconds, story
from tests.faults.stumbling import stumbling
from tests.waiting import until

PARTITIONS = 8
LIMIT_S = Timeouts().delivery_timeout_ms / 1000


@asynccontextmanager
async def linked(nodes: int = 1, *, names: int | None = None) -> AsyncIterator[tuple[FakeCluster, KafkaLink]]:
    """`names`: how many of the brokers the link is given; by default all."""
    cluster = FakeCluster(nodes)
    cluster.create(TOPIC, PARTITIONS)
    link = KafkaLink(cluster.bootstrap[:names], NOT_SECURED, Timeouts())
    await link.open()
    await link.follow([TOPIC])
    yield cluster, link
    await link.close()


def writer_config(partition: int) -> WriterConfig:
    return WriterConfig(topic=TOPIC, partition=partition, limit_bytes=10**6, delivery_timeout_ms=int(LIMIT_S * 1000))


async def append(writer: KafkaWriter, value: bytes = b"v") -> None:
    assert await writer.append([(Record(b"k", value),)]) == [None]


async def kinds(*awaited: "asyncio.Task[KafkaWriter]") -> Collection[type]:
    return {type(each) for each in await asyncio.gather(*awaited, return_exceptions=True)}


@story
async def test_failed_requests_are_retried_after_a_pause() -> None:
    """The second time, too; and never after a long one."""
    tried: list[float] = []

    async def attempt() -> None:
        tried.append(seconds())
        raise TryAgain("not yet")

    with pytest.raises(LogUnavailable, match="given up after 60000 ms: not yet"):
        await retry(attempt, timeout_ms=60_000)
    pauses = [later - earlier for earlier, later in pairwise(tried)]
    assert 0 < pauses[0] <= RETRY_PAUSE_MIN_S
    assert all(0 < pause <= RETRY_PAUSE_MAX_S for pause in pauses)
    assert max(pauses) > RETRY_PAUSE_MIN_S


@pytest.mark.parametrize("fault", ["hang", "stop"])
@story
async def test_claims_at_an_unreachable_broker_are_each_unavailable(fault: str) -> None:
    """All at their limit, and with the same error; when the broker is back, they succeed at once."""
    async with linked() as (cluster, link):
        await append(await claim(link, writer_config(0)))
        getattr(cluster, fault)(1)
        began = seconds()
        claims = [asyncio.create_task(claim(link, writer_config(partition))) for partition in range(PARTITIONS)]
        assert await kinds(*claims) == {LogUnavailable}
        assert seconds() - began == pytest.approx(LIMIT_S, abs=0.1)
        claims = [asyncio.create_task(claim(link, writer_config(partition))) for partition in range(PARTITIONS)]
        await asyncio.sleep(LIMIT_S / 2)
        (cluster.go_on if fault == "hang" else cluster.start)(1)
        back = seconds()
        assert await kinds(*claims) == {KafkaWriter}
        assert seconds() - back < 2


@pytest.mark.parametrize("fault", [KeyError("api_key"), AssertionError()])
@story
async def test_a_connect_that_fails_in_aiokafka_is_retried(fault: Exception) -> None:
    """With its name; and what our own code raises there is a bug of ours."""

    def is_a_bug(_: KafkaSecurity) -> None:
        raise KeyError("of ours")

    async with linked() as (cluster, link):
        with (
            stumbling(fault),
            pytest.raises(LogUnavailable, match=f"{type(fault).__name__} in aiokafka while connecting"),
        ):
            await claim(link, writer_config(0))
        await append(await claim(link, writer_config(0)))
        cluster.stop(1)
        cluster.start(1)
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(KafkaSecurity, "client_arguments", is_a_bug)
            with pytest.raises(KeyError, match="of ours"):
                await claim(link, writer_config(0))


@story
async def test_a_request_times_out_long_before_its_outer_limit() -> None:
    """Its connection is closed and the leaders are looked up again, so reading also finds a leader that has moved."""
    async with linked(2) as (cluster, link):
        leader = cluster.partition(TOPIC, 0).leader
        await append(await claim(link, writer_config(0)))
        await claim(link, writer_config(0))  # it has read the newest batch, so the connection for that is open
        cluster.hang(leader)
        requested = cluster.asked[METADATA]

        async def read_all() -> list[int]:
            chunks = read(link, TOPIC, 0, start=0, end=1, timeout_ms=int(LIMIT_S * 1000))
            return [record.offset async for chunk in chunks for record in chunk]

        reading = asyncio.create_task(read_all())
        await asyncio.sleep(9)
        assert not reading.done()
        cluster.fail_over(leader)
        moved = seconds()
        assert await reading == [0]
        assert seconds() - moved < 7
        assert cluster.asked[METADATA] > requested


@story
async def test_connections_to_one_broker_do_not_wait_for_those_to_another() -> None:
    """Each has its own short limit."""
    async with linked(2) as (cluster, link):
        cluster.hang(1)
        began = seconds()
        hung = [asyncio.create_task(link.ask(1, api_versions(), lane=lane)) for lane in range(20)]
        for lane in range(20):
            await link.ask(2, api_versions(), lane=lane)
        assert seconds() - began < 0.1
        assert {type(each) for each in await asyncio.gather(*hung, return_exceptions=True)} == {TryAgain}
        assert seconds() - began == pytest.approx(Timeouts().connect_timeout_ms / 1000, abs=0.1)


@pytest.mark.parametrize("api_key", [PRODUCE, INIT_PRODUCER_ID, FETCH, METADATA])
@story
async def test_a_request_with_a_lost_response_is_repeated(api_key: int) -> None:
    """Nothing is appended twice."""
    async with linked() as (cluster, link):
        await append(await claim(link, writer_config(0)), b"a")
        cluster.lose_answers(api_key, 2)
        writer = await claim(link, writer_config(0))
        await append(writer, b"b")
        cluster.lose_answers(api_key, 2)
        await append(writer, b"c")
        assert cluster.partition(TOPIC, 0).end == 3


@story
async def test_a_connection_on_which_nothing_is_answered_any_more_is_replaced() -> None:
    """As after a router's restart: the request times out, and the next one uses a new connection."""
    async with linked() as (cluster, link):
        writer = await claim(link, writer_config(0))
        await append(writer)
        cluster.drop_packets(1)
        began = seconds()
        await append(writer)
        assert seconds() - began < Timeouts().produce_timeout_ms / 1000 + 1
        began = seconds()
        await append(writer)
        assert seconds() - began < 0.1
        assert cluster.partition(TOPIC, 0).end == 3


@story
async def test_a_link_that_is_opened_again_has_closed_its_connections() -> None:
    async with linked() as (cluster, link):
        await link.open()
        *before, last = cluster.brokers[1].connections
        assert before
        assert all(each.is_closing() for each in before)
        assert not last.is_closing()


@story
async def test_a_question_to_any_broker_is_put_to_another_when_one_is_silent() -> None:
    """Each hanging broker costs half a second, whichever is tried first; from then on they are tried last."""
    async with linked(3) as (cluster, link):
        for node in (1, 2):
            cluster.hang(node)
        began = seconds()
        for _ in range(10):
            await link.refresh()
        assert seconds() - began <= 1.1


@story
async def test_a_request_waiting_at_an_old_leader_continues_when_the_move_is_known() -> None:
    """And not when the time of its request is over."""
    async with linked(2) as (cluster, link):
        leader = cluster.partition(TOPIC, 0).leader
        cluster.hang(leader)
        waiting = asyncio.create_task(
            link.ask_leader(TOPIC, 0, api_versions(), lane=writer_config(0).lane, timeout_ms=60_000)
        )
        await asyncio.sleep(0.1)
        cluster.fail_over(leader)
        link.refresh_soon()
        with pytest.raises(TryAgain):
            await asyncio.wait_for(waiting, 1)


@story
async def test_a_silent_broker_that_responds_again_is_no_longer_tried_last() -> None:
    """Another one may be silent by then."""
    async with linked(2) as (cluster, link):
        cluster.hang(1)
        for _ in range(10):
            await link.refresh()
        cluster.go_on(1)
        cluster.hang(2)
        began = seconds()
        for _ in range(20):
            await link.refresh()
        assert seconds() - began <= 0.6


@story
async def test_waiters_are_notified_when_the_link_is_closed() -> None:
    """As for a log that cannot be reached, not as for a cancelled task."""
    async with linked() as (cluster, link):
        cluster.hang(1)
        claims = [asyncio.create_task(claim(link, writer_config(partition))) for partition in range(2)]
        await asyncio.sleep(1)
        began = seconds()
        await link.close()
        assert await kinds(*claims) == {LogUnavailable}
        assert seconds() - began < 1


async def until_it_leads(node: int, link: KafkaLink) -> None:
    """Wait until the link has found the partition at this broker. Raises TimeoutError."""
    await until(lambda: link.brokers() == [node], within_s=10)
    await link.ask_leader(TOPIC, 0, api_versions(), lane=writer_config(0).lane)


def take_away(cluster: FakeCluster, node: int) -> None:
    """The broker ends, and the others have noticed."""
    cluster.stop(node)
    cluster.fail_over(node)


@story
async def test_a_broker_that_was_unreachable_is_found_again_though_the_bootstrap_server_ends() -> None:
    """As while a cluster is restarted one by one: Metadata names one broker at a time."""
    async with linked(2, names=1) as (cluster, link):
        take_away(cluster, 2)
        await link.refresh()
        assert link.brokers() == [1]
        cluster.start(2)
        take_away(cluster, 1)
        await until_it_leads(2, link)


@story
async def test_a_link_finds_what_another_one_of_the_process_knows() -> None:
    """It never learned of the broker that the partition moves to."""
    known = KnownBrokers()
    cluster = FakeCluster(2)
    cluster.create(TOPIC, PARTITIONS)
    take_away(cluster, 2)
    first, second = [KafkaLink(cluster.bootstrap[:names], NOT_SECURED, Timeouts(), known) for names in (1, 2)]
    for link in (first, second):
        await link.open()
        await link.follow([TOPIC])
    cluster.start(2)
    await second.refresh()
    take_away(cluster, 1)
    await until_it_leads(2, first)
    for link in (first, second):
        await link.close()


@pytest.mark.parametrize("fault", ["hang", "stop"])
@story
async def test_a_link_with_its_one_broker_unreachable_tries_known_others_within_seconds(fault: str) -> None:
    """When it is opened, and while it runs; whether the one refuses or hangs."""
    known = KnownBrokers()
    cluster = FakeCluster(2)
    cluster.create(TOPIC, PARTITIONS)
    learned, running, late = [
        KafkaLink(cluster.bootstrap[:names], NOT_SECURED, Timeouts(), known) for names in (2, 1, 1)
    ]
    take_away(cluster, 2)
    await running.open()  # it never learned of the second one
    cluster.start(2)
    await learned.open()
    getattr(cluster, fault)(1)
    cluster.fail_over(1)
    began = seconds()
    await late.open()
    await running.refresh()
    assert seconds() - began < 3
    assert late.brokers() == running.brokers()
    for link in (learned, running, late):
        await link.close()


def test_a_link_that_has_found_no_cluster_takes_no_broker_of_another_one() -> None:
    """A configured address says which; if two clusters have it, or it is another listener, nothing is known."""
    known = KnownBrokers()
    given, other = BrokerAddress("kafka", 1), BrokerAddress("kafka", 2)
    known.note("elsewhere", "PLAINTEXT", [BrokerAddress("elsewhere", 1)])
    known.note("fake", "SASL_SSL", [given, other])
    assert not known.of(None, "PLAINTEXT", [given])
    known.note("fake", "PLAINTEXT", [given, other])
    assert known.of(None, "PLAINTEXT", [given]) == [other, given]
    known.note("moved", "PLAINTEXT", [given])
    assert not known.of(None, "PLAINTEXT", [given])


def test_addresses_of_another_listener_are_not_tried() -> None:
    """Neither are addresses that another cluster advertised."""
    known = KnownBrokers()
    address = BrokerAddress("elsewhere", 9092)
    known.note("fake", "SASL_SSL", [address])
    known.note("another", "PLAINTEXT", [address])
    assert [list(known.of(each, "PLAINTEXT")) for each in ("fake", None)] == [[], []]
    assert list(known.of("fake", "SASL_SSL")) == [address]


def test_few_addresses_are_kept() -> None:
    """The latest: brokers may keep returning under new addresses."""
    known = KnownBrokers()
    for port in range(1, 1_000):
        known.note("fake", "PLAINTEXT", [BrokerAddress("kafka", 1), BrokerAddress("kafka", port)])
    kept = known.of("fake", "PLAINTEXT")
    assert len(kept) == ADDRESSES_MAX
    assert BrokerAddress("kafka", 1) in kept


class Refusing:
    """A port without a listener; it counts connection attempts."""

    def __init__(self) -> None:
        self.tried = 0

    def accepted(self, _connection: Connection) -> None:
        self.tried += 1
        raise ConnectionRefusedError("Connect call failed")

    def received(self, _connection: Connection, _frame: bytes) -> None:
        raise AssertionError("nobody is connected")


@story
async def test_a_refusing_address_is_not_tried_for_each_request() -> None:
    """Hundreds of lanes may ask: there is one attempt per tenth of a second, and all get its error."""
    async with linked() as (cluster, link):
        cluster.stop(1)
        nobody = Refusing()
        loop = asyncio.get_running_loop()
        assert isinstance(loop, NetworkLoop)
        loop.listeners[HOST, 1] = nobody
        await asyncio.sleep(1)  # the link's own requests are finished
        nobody.tried = 0
        for lane in range(50):
            with pytest.raises(TryAgain, match="Connect call failed"):
                await link.ask(1, api_versions(), lane=lane)
        assert nobody.tried == 1
        await asyncio.sleep(2)
        tried = nobody.tried
        with pytest.raises(TryAgain, match="Connect call failed"):
            await link.ask(1, api_versions())
        assert nobody.tried == tried + 1


@pytest.mark.parametrize("fault", ["hang", "stop"])
@story
async def test_a_failed_request_makes_the_link_look_up_the_leader(fault: str) -> None:
    """Immediately, not at its next regular refresh."""
    async with linked(2) as (cluster, link):
        leader = cluster.partition(TOPIC, 0).leader
        await asyncio.sleep(1)
        getattr(cluster, fault)(leader)
        cluster.fail_over(leader)
        with pytest.raises(TryAgain):
            await link.ask_leader(TOPIC, 0, api_versions(), lane=writer_config(0).lane)
        began = seconds()
        while link.brokers() != [3 - leader]:
            await asyncio.sleep(0.01)
            assert seconds() - began < 1
        await link.ask_leader(TOPIC, 0, api_versions(), lane=writer_config(0).lane)


@story
async def test_an_append_that_was_cut_short_is_the_writers_last() -> None:
    """It is unknown whether the batch is stored: the next one with its sequence number would be taken for it, and never
    appended.
    """
    async with linked() as (cluster, link):
        writer = await claim(link, writer_config(0))
        await append(writer, b"a")
        cluster.hang(1)
        appending = asyncio.create_task(append(writer, b"b"))
        await asyncio.sleep(0.1)
        appending.cancel()
        await asyncio.gather(appending, return_exceptions=True)
        cluster.go_on(1)
        for _ in range(2):
            with pytest.raises(LogUnavailable, match="its outcome is not known"):
                await append(writer, b"c")
        assert cluster.partition(TOPIC, 0).end == 2


@story
async def test_batches_follow_each_other_without_a_gap() -> None:
    """They have any number of records; a broker refuses a gap, and so it does a writer that was overtaken."""
    async with linked() as (cluster, link):
        writer = await claim(link, writer_config(0))
        for number in range(1, 5):
            assert await writer.append([(Record(b"k", b"v"),) * number] * number) == [None] * number
        assert cluster.partition(TOPIC, 0).end == 1 + 4 + 9 + 16
        writer._sequence += 1
        with pytest.raises(LogUnavailable, match="OUT_OF_ORDER_SEQUENCE_NUMBER"):
            await append(writer)
