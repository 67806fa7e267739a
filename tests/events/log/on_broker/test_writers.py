"""Writers of the event log in Kafka, on a real broker: the fence, lost and forged answers, a log that is closed."""

import asyncio
import math

import pytest
from kio.schema.errors import ErrorCode

from muster.events.log.base import Deposed, LogMismatch, LogUnavailable
from muster.events.log.kafka.batches import Stamp
from muster.events.log.kafka.marks import origin_of
from muster.events.log.kafka.producer import KafkaWriter, WriterConfig
from muster.events.log.kafka.reader import read
from muster.events.records import Record
from tests.brokers.broker import Broker
from tests.coordinator.hostile import HELD_S_MAX
from tests.coordinator.longest_callback import longest_callback
from tests.events.log.kafka_proxy import ApiKey
from tests.events.log.on_broker.proxied import ProxiedKafkaEventLog, followed
from tests.events.log.repeating import repeated
from tests.events.log.storage import MIB
from tests.events.log.transitions import flat, incompressible, read_all, records_of, transition
from tests.waiting import until

pytestmark = pytest.mark.broker


class TestFence:
    """The table in the notes on fencing without transactions, step by step."""

    async def test_a_writer_appends_until_the_next_one_has_appended(self, log: ProxiedKafkaEventLog) -> None:
        """A claim alone deposes no writer, so a claimer appends its fence record before it reads."""
        old = await log.claim(0)
        new = await log.claim(0)

        assert list(await old.append([transition("between")])) == [None]
        await new.append([transition("fence")])
        with pytest.raises(Deposed):
            await old.append([transition("late")])

        assert records_of(await read_all(log)) == flat([transition("between"), transition("fence")])

    async def test_a_repeated_append_appends_nothing_and_reports_that_the_writer_was_deposed(
        self, log: ProxiedKafkaEventLog
    ) -> None:
        """So an owner that has nothing to append finds out; a batch that is too large to be kept is not repeated."""
        old = await log.claim(0)
        assert await repeated(log, old) == {0: False}
        await old.append([transition("first")])
        assert await repeated(log, old) == {0: True}
        await old.append([(Record(b"large", incompressible(40_000, "large")),)])
        assert await repeated(log, old) == {0: False}
        await old.append([transition("last")])
        for _ in range(2):
            assert await repeated(log, old) == {0: True}
        ours = len(await read_all(log))
        new = await log.claim(0)
        assert await repeated(log, old) == {0: True}  # a claim alone deposes no writer
        await new.append([transition("fence")])
        for _ in range(2):
            assert isinstance((await repeated(log, old))[0], Deposed)
        assert await repeated(log, new) == {0: True}
        assert len(await read_all(log)) == ours + len(transition("fence"))

    async def test_a_batch_is_repeated_while_newer_ones_are_appended(self, log: ProxiedKafkaEventLog) -> None:
        """A repetition that follows more batches than the broker remembers shows nothing, and changes nothing."""
        writer = await log.claim(0)
        assert isinstance(writer, KafkaWriter)
        await writer.append([transition("first")])
        first = writer.last_batch
        known = []
        for number in range(6):
            await writer.append([transition(f"newer {number}")])
            newest, writer.last_batch = writer.last_batch, first
            known.append((await repeated(log, writer))[0])
            writer.last_batch = newest
        assert known == [True, True, True, True, False, False]
        assert await repeated(log, writer) == {0: True}
        await writer.append([transition("last")])

    async def test_the_batches_of_one_broker_are_repeated_in_one_request(
        self, kafka_broker: Broker, topic: str
    ) -> None:
        """Each partition has its own verdict; one writer that was deposed among them takes no other's."""
        log = ProxiedKafkaEventLog(kafka_broker, topic, partitions=4)
        await log.open()
        try:
            writers = [await log.claim(number) for number in range(4)]
            for writer in writers[:3]:
                await writer.append([transition("mine")])
            await (await log.claim(1)).append([transition("another's")])
            requested = log.proxy.requests.count(ApiKey.PRODUCE)
            answers = await repeated(log, *writers)
            assert log.proxy.requests.count(ApiKey.PRODUCE) == requested + 1
        finally:
            await log.close()
        assert answers.keys() == {0, 1, 2, 3}
        assert (answers[0], answers[2], answers[3]) == (True, True, False)
        assert isinstance(answers[1], Deposed)

    async def test_a_large_batch_is_made_beside_the_loop(self, log: ProxiedKafkaEventLog) -> None:
        """30 MB took a third of a second of it."""
        writer = await log.claim(0)
        many = tuple(Record(b"k%d" % n, bytes(1_500)) for n in range(20_000))
        with longest_callback() as longest:
            assert list(await writer.append([many])) == [None]
        assert longest.seconds < HELD_S_MAX, longest

    async def test_a_cluster_without_the_fence_is_refused(self, kafka_broker: Broker, topic: str) -> None:
        """Opening tests whether a stale epoch is refused; here the response is forged."""
        log = ProxiedKafkaEventLog(kafka_broker, topic, partitions=1)
        log.proxy.forge_errors(ApiKey.PRODUCE, 0, 0)

        with pytest.raises(LogMismatch, match="accepts the append of a deposed writer"):
            await log.open()
        await log.close()

    async def test_the_epoch_grows_when_kafka_begins_again_at_zero(
        self, log: ProxiedKafkaEventLog, kafka_broker: Broker, topic: str
    ) -> None:
        """As after 32,767 claims, or when the transactional.id has expired: another producer id, epoch 0."""
        async with followed(kafka_broker, topic) as link:
            config = WriterConfig(topic=topic, partition=0, limit_bytes=MIB, delivery_timeout_ms=10_000)
            origin = origin_of(log.cluster_id).encode()
            stamp = Stamp(producer_id=10**12, producer_epoch=32_766, epoch_base=0, origin=origin)
            last = KafkaWriter(link, config, stamp)
            await last.append([transition("last of its id")])

        epochs = []
        for name in ("a", "b", "c"):
            writer = await log.claim(0)
            epochs.append(writer.epoch)
            await writer.append([transition(name)])

        assert epochs == [32_767, 32_768, 32_769]


class TestLostAnswers:
    @pytest.mark.parametrize("losses", [1, 3])
    async def test_an_append_with_a_lost_acknowledgement_is_repeated_and_stored_once(
        self, log: ProxiedKafkaEventLog, losses: int
    ) -> None:
        """The broker has the batch; the same batch with the same sequence is answered and not appended again."""
        writer = await log.claim(0)
        await writer.append([transition("before")])
        appends_before = log.proxy.requests.count(ApiKey.PRODUCE)
        log.proxy.lose_answers(ApiKey.PRODUCE, losses)

        assert list(await writer.append([transition("a"), transition("b")])) == [None, None]
        assert list(await writer.append([transition("after")])) == [None]

        assert log.proxy.requests.count(ApiKey.PRODUCE) == appends_before + losses + 2
        expected = flat(transition(name) for name in ("before", "a", "b", "after"))
        assert records_of(await read_all(log)) == expected

    @pytest.mark.parametrize(
        "error",
        [
            ErrorCode.not_leader_or_follower,
            ErrorCode.request_timed_out,
            ErrorCode.not_enough_replicas,
            ErrorCode.not_enough_replicas_after_append,
            ErrorCode.kafka_storage_error,
            ErrorCode.unknown_server_error,
        ],
    )
    async def test_an_error_that_leaves_the_outcome_open_is_not_believed(
        self, log: ProxiedKafkaEventLog, error: ErrorCode
    ) -> None:
        """The batch may be stored, as here; it is sent again until the outcome is clear."""
        writer = await log.claim(0)
        log.proxy.forge_errors(ApiKey.PRODUCE, error.value, error.value)

        assert list(await writer.append([transition("a")])) == [None]

        assert records_of(await read_all(log)) == list(transition("a"))

    async def test_a_duplicate_sequence_number_means_that_it_is_there(self, log: ProxiedKafkaEventLog) -> None:
        """The broker reports that for a batch whose offset it no longer remembers."""
        writer = await log.claim(0)
        log.proxy.forge_errors(
            ApiKey.PRODUCE, ErrorCode.request_timed_out.value, ErrorCode.duplicate_sequence_number.value
        )

        assert list(await writer.append([transition("a")])) == [None]
        assert list(await writer.append([transition("b")])) == [None]

        assert records_of(await read_all(log)) == flat([transition("a"), transition("b")])

    @pytest.mark.parametrize("error", [ErrorCode.invalid_producer_epoch, ErrorCode.producer_fenced])
    async def test_a_fenced_writer_is_deposed_at_once(self, log: ProxiedKafkaEventLog, error: ErrorCode) -> None:
        """No second request is sent."""
        writer = await log.claim(0)
        log.proxy.forge_errors(ApiKey.PRODUCE, error.value)
        appends_before = log.proxy.requests.count(ApiKey.PRODUCE)

        for _ in range(2):
            with pytest.raises(Deposed):
                await writer.append([transition("a")])

        assert log.proxy.requests.count(ApiKey.PRODUCE) == appends_before + 1

    @pytest.mark.parametrize(
        "codes",
        [
            [ErrorCode.out_of_order_sequence_number],
            [ErrorCode.unknown_producer_id],
            [ErrorCode.topic_authorization_failed],
            [ErrorCode.request_timed_out, ErrorCode.message_too_large],
        ],
        ids=lambda codes: "-".join(code.name for code in codes),
    )
    async def test_an_inconclusive_response_ends_the_writer(
        self, log: ProxiedKafkaEventLog, codes: list[ErrorCode]
    ) -> None:
        """Too large the second time does not mean that the first attempt failed."""
        writer = await log.claim(0)
        log.proxy.forge_errors(ApiKey.PRODUCE, *(code.value for code in codes))

        with pytest.raises(LogUnavailable, match=codes[-1].name.upper()):
            await writer.append([transition("a")])
        with pytest.raises(LogUnavailable):
            await writer.append([transition("b")])

        assert records_of(await read_all(log)) == list(transition("a"))

    async def test_a_writer_with_a_cancelled_append_stops_appending(self, log: ProxiedKafkaEventLog) -> None:
        """Its next batch would have the sequence number of one that may be stored, and be taken for it."""
        writer = await log.claim(0)
        log.proxy.lose_answers(ApiKey.PRODUCE, math.inf)
        appends_before = log.proxy.requests.count(ApiKey.PRODUCE)
        appending = asyncio.create_task(writer.append([transition("a")]))
        await until(lambda: log.proxy.requests.count(ApiKey.PRODUCE) > appends_before)
        appending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await appending
        log.proxy.lose_answers(ApiKey.PRODUCE, 0)

        with pytest.raises(LogUnavailable, match="did not complete"):
            await writer.append([transition("b")])
        await (await log.claim(0)).append([transition("fence")])
        assert records_of(await read_all(log)) == flat([transition("a"), transition("fence")])

    async def test_reading_continues_with_the_next_leader(self, log: ProxiedKafkaEventLog) -> None:
        """Leadership that is lost during a reading, and a connection that breaks, are no end of the log."""
        writer = await log.claim(0)
        transitions = [(Record(b"%d" % n, incompressible(MIB // 2, str(n))),) for n in range(8)]
        await writer.append(transitions)
        reading = log.read(0)
        stored = list(await anext(reading))

        log.proxy.forge_errors(
            ApiKey.FETCH, ErrorCode.not_leader_or_follower.value, ErrorCode.kafka_storage_error.value
        )
        log.proxy.lose_answers(ApiKey.FETCH, 2)
        async for chunk in reading:
            stored += chunk

        assert records_of(stored) == flat(transitions)

    async def test_a_log_shorter_than_before_is_not_read_completely(
        self, log: ProxiedKafkaEventLog, kafka_broker: Broker, topic: str
    ) -> None:
        """A log that ends before the known end has lost records, and is not taken for the whole."""
        await (await log.claim(0)).append([transition("a")])
        async with followed(kafka_broker, topic) as link:
            reading = read(link, topic, 0, start=0, end=5, timeout_ms=2_000)
            assert records_of(await anext(reading)) == list(transition("a"))
            with pytest.raises(LogUnavailable, match="ends at 2, before 5"):
                await anext(reading)
            with pytest.raises(LogUnavailable, match="ends before offset 3"):
                await anext(read(link, topic, 0, start=3, end=5, timeout_ms=2_000))


@pytest.mark.parametrize("ended", [False, True], ids=["before", "meanwhile"])
async def test_a_closed_log_refuses_appends_and_reads(log: ProxiedKafkaEventLog, *, ended: bool) -> None:
    """Every holder of its writer gets that error, also with an append in progress."""
    writer = await log.claim(0)
    log.proxy.lose_answers(ApiKey.PRODUCE, math.inf)
    appending = asyncio.create_task(writer.append([transition("a")])) if ended else None
    await until(lambda: appending is None or log.proxy.requests[-1] == ApiKey.PRODUCE)

    await log.close()

    with pytest.raises(LogUnavailable):
        await (appending or writer.append([transition("a")]))
    with pytest.raises(LogUnavailable):
        await read_all(log)
