"""The event log in Kafka, on a real broker: the contract, the fence, the settings, lost answers, compaction."""

import asyncio
import math
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from kio.schema.errors import ErrorCode

from events.log.base import AppendRefused, Deposed, EventLog, LogMismatch, LogUnavailable
from events.log.kafka import KafkaEventLog
from events.log.kafka_batches import Stamp
from events.log.kafka_link import KafkaLink, KafkaSecurity
from events.log.kafka_producer import KafkaWriter, Place
from events.log.kafka_reader import read
from events.records import Record, StoredRecord
from tests.brokers.broker import Broker
from tests.events.log.contract import (
    BATCH_BYTES_MAX,
    MIB,
    EventLogContract,
    flat,
    incompressible,
    read_all,
    records_of,
    transition,
)
from tests.events.log.kafka_proxy import ApiKey, BrokerProxy

pytestmark = pytest.mark.broker

DAY_MS = 24 * 60 * 60 * 1000
EVENT_TOPIC_CONFIGS = {"cleanup.policy": "compact", "min.compaction.lag.ms": str(7 * DAY_MS)}


class ProxiedKafkaEventLog(KafkaEventLog):
    """A Kafka log whose every connection goes through a proxy of its own."""

    def __init__(self, broker: Broker, topic: str, **settings: Any) -> None:
        self.proxy = BrokerProxy(broker.bootstrap)
        super().__init__([self.proxy.address], topic, **settings)

    async def open(self) -> None:
        await self.proxy.start()
        await super().open()

    async def close(self) -> None:
        await super().close()
        await self.proxy.stop()


class KafkaFaults:
    def lose_next_acknowledgement(self, log: EventLog) -> None:
        """And those of every repetition, until the writer gives up."""
        assert isinstance(log, ProxiedKafkaEventLog)
        log.proxy.lose_answers(ApiKey.PRODUCE, math.inf)


class KafkaLogStorage:
    def __init__(self, broker: Broker, append_limit_ms: int) -> None:
        self.faults = KafkaFaults()
        self._broker = broker
        self._topic = new_topic_name()
        self._append_limit_ms = append_limit_ms

    def make_log(self, *, read_only: bool = False, batch_bytes_max: int = BATCH_BYTES_MAX) -> KafkaEventLog:
        return ProxiedKafkaEventLog(
            self._broker,
            self._topic,
            partitions=2,
            batch_bytes_max=batch_bytes_max,
            append_limit_ms=self._append_limit_ms,
            read_only=read_only,
        )


class TestKafkaEventLog(EventLogContract):
    @pytest.fixture
    def append_limit_ms(self) -> int:
        return 30_000

    @pytest.fixture
    def storage(self, kafka_broker: Broker, append_limit_ms: int) -> KafkaLogStorage:
        return KafkaLogStorage(kafka_broker, append_limit_ms)

    @pytest.mark.parametrize("append_limit_ms", [1_000])
    async def test_what_was_appended_without_acknowledgement_is_there_once(
        self,
        log: EventLog,
        open_log: Any,
        storage: Any,
        append_limit_ms: int,
    ) -> None:
        """The batch was sent several times before the writer gave up."""
        await super().test_what_was_appended_without_acknowledgement_is_there_once(log, open_log, storage)
        assert isinstance(log, ProxiedKafkaEventLog)
        assert log.proxy.requests.count(ApiKey.PRODUCE) > 4


def new_topic_name() -> str:
    return f"events-{uuid.uuid4().hex[:12]}"


OpenKafkaLog = Callable[..., Awaitable[ProxiedKafkaEventLog]]


@pytest.fixture
def topic() -> str:
    return new_topic_name()


@pytest.fixture
async def open_log(kafka_broker: Broker, topic: str) -> AsyncIterator[OpenKafkaLog]:
    """Opens a log on the test's topic, through a proxy; closed after the test."""
    opened: list[ProxiedKafkaEventLog] = []

    async def open_one(**settings: Any) -> ProxiedKafkaEventLog:
        log = ProxiedKafkaEventLog(kafka_broker, topic, **settings)
        opened.append(log)
        await log.open()
        return log

    yield open_one
    for log in opened:
        await log.close()


@pytest.fixture
async def log(open_log: OpenKafkaLog) -> ProxiedKafkaEventLog:
    return await open_log(partitions=2, append_limit_ms=10_000)


@pytest.fixture
async def admin(kafka_broker: Broker) -> AsyncIterator[AIOKafkaAdminClient]:
    admin = AIOKafkaAdminClient(bootstrap_servers=kafka_broker.bootstrap)
    await admin.start()
    yield admin
    await admin.close()


async def create_topic(
    admin: AIOKafkaAdminClient, topic: str, configs: Mapping[str, str], *, partitions: int = 2
) -> None:
    """A topic as an event topic is, but for the `configs` given."""
    settings = {**EVENT_TOPIC_CONFIGS, **configs}
    response = await admin.create_topics([NewTopic(topic, partitions, 1, topic_configs=settings)])
    assert [code for _, code, *_ in response.topic_errors] == [0]


async def set_configs(admin: AIOKafkaAdminClient, topic: str, configs: Mapping[str, str]) -> None:
    """The topic's configs from now on, over those of an event topic."""
    settings = {**EVENT_TOPIC_CONFIGS, **configs}
    await admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, configs=settings)])


async def configs_of(admin: AIOKafkaAdminClient, topic: str) -> dict[str, str]:
    (response,) = await admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)])
    ((*_, entries),) = response.resources
    return {name: value for name, value, *_ in entries}


@asynccontextmanager
async def followed(broker: Broker, topic: str) -> AsyncIterator[KafkaLink]:
    """A link that knows the topic's leaders."""
    link = KafkaLink([broker.bootstrap], KafkaSecurity(), request_timeout_ms=10_000)
    await link.open()
    await link.follow([topic])
    yield link
    await link.close()


async def until(condition: Callable[[], bool], *, within_s: float = 60) -> None:
    async with asyncio.timeout(within_s):
        while not condition():  # noqa: ASYNC110  (the proxy tells nobody what it has relayed)
            await asyncio.sleep(0.001)


async def compacted(log: EventLog, *, records_max: int) -> list[StoredRecord]:
    """The log, once compaction has left no more than that; it runs when the broker likes."""
    async with asyncio.timeout(120):
        while len(stored := await read_all(log)) > records_max:  # noqa: ASYNC110
            await asyncio.sleep(0.1)
    return stored


class TestTopic:
    async def test_a_missing_topic_is_made_with_the_settings_of_the_design(
        self, open_log: OpenKafkaLog, admin: AIOKafkaAdminClient, topic: str
    ) -> None:
        """Compacted, but not within the audit window; batches of 64 MiB, compressed as we send them."""
        log = await open_log()

        configs = await configs_of(admin, topic)
        assert log.partitions == 8
        assert log.warnings == ()
        assert configs["cleanup.policy"] == "compact"
        assert configs["min.compaction.lag.ms"] == str(7 * DAY_MS)
        assert configs["max.message.bytes"] == str(64 * MIB)
        assert configs["compression.type"] == "producer"
        assert configs["min.insync.replicas"] == "1"
        assert configs["unclean.leader.election.enable"] == "false"

    async def test_owners_that_start_together_make_one_topic(self, open_log: OpenKafkaLog) -> None:
        """Each of them opens it, and proves the fence without deposing the others."""
        logs = await asyncio.gather(*(open_log(partitions=3) for _ in range(4)))

        assert [log.partitions for log in logs] == [3, 3, 3, 3]

    async def test_the_partitions_of_the_topic_are_taken_where_none_are_asked_for(
        self, open_log: OpenKafkaLog, admin: AIOKafkaAdminClient, topic: str
    ) -> None:
        """A restart without the flag is no mismatch."""
        await create_topic(admin, topic, {}, partitions=5)

        assert (await open_log()).partitions == 5

    async def test_another_number_of_partitions_is_refused(
        self, open_log: OpenKafkaLog, admin: AIOKafkaAdminClient, topic: str
    ) -> None:
        """With it groups would be looked for where they are not."""
        await create_topic(admin, topic, {}, partitions=5)

        with pytest.raises(LogMismatch) as mismatch:
            await open_log(partitions=8)

        assert f"topic {topic} has 5 partitions, the settings say 8: start with 5" in str(mismatch.value)

    @pytest.mark.parametrize(
        "contradiction",
        [
            ("cleanup.policy", "delete", "compact"),
            ("cleanup.policy", "compact,delete", "compact"),
            ("min.compaction.lag.ms", "0", str(DAY_MS)),
            ("unclean.leader.election.enable", "true", "false"),
        ],
        ids="=".join,
    )
    async def test_a_setting_that_contradicts_ours_is_refused(
        self, open_log: OpenKafkaLog, admin: AIOKafkaAdminClient, topic: str, contradiction: tuple[str, str, str]
    ) -> None:
        """The message names the setting, both values, and the command that mends it."""
        setting, found, wanted = contradiction
        await create_topic(admin, topic, {"min.compaction.lag.ms": str(DAY_MS), setting: found})

        with pytest.raises(LogMismatch) as mismatch:
            await open_log(audit_window_ms=DAY_MS)

        assert f"topic {topic} has {setting}={found}, the settings say {wanted}" in str(mismatch.value)
        assert f"--entity-name {topic} --add-config {setting}={wanted}`" in str(mismatch.value)

    async def test_all_contradictions_are_told_at_once(
        self, open_log: OpenKafkaLog, admin: AIOKafkaAdminClient, topic: str
    ) -> None:
        """Nobody mends a topic one start at a time."""
        await create_topic(admin, topic, {"cleanup.policy": "delete", "min.compaction.lag.ms": "1"})

        with pytest.raises(LogMismatch, match=r"partitions.*cleanup\.policy.*min\.compaction\.lag\.ms"):
            await open_log(partitions=7)

    async def test_a_log_opened_for_reading_makes_no_topic(
        self, open_log: OpenKafkaLog, admin: AIOKafkaAdminClient, topic: str
    ) -> None:
        """Also where the cluster makes topics that clients ask for."""
        with pytest.raises(LogMismatch, match=f"there is no topic {topic}"):
            await open_log(read_only=True)

        assert topic not in await admin.list_topics()

    async def test_a_log_opened_for_reading_claims_nothing(
        self, log: ProxiedKafkaEventLog, open_log: OpenKafkaLog
    ) -> None:
        """And asks the cluster for no epoch."""
        reader = await open_log(read_only=True)
        assert reader.partitions == log.partitions

        with pytest.raises(LogMismatch, match="not open for writing"):
            await reader.claim(0)

    async def test_a_cluster_that_is_not_there(self, topic: str) -> None:
        """Opening fails with the addresses that were tried."""
        unused = BrokerProxy("127.0.0.1:1")
        await unused.stop()
        log = KafkaEventLog([unused.address], topic)

        with pytest.raises(LogUnavailable, match=unused.address):
            await log.open()
        await log.close()


class TestFence:
    """The table in the notes on fencing without transactions, step by step."""

    async def test_a_writer_appends_until_the_next_one_has_appended(self, log: ProxiedKafkaEventLog) -> None:
        """A claim alone deposes nobody: so a claimer appends its fence record before it reads."""
        old = await log.claim(0)
        new = await log.claim(0)

        assert list(await old.append([transition("between")])) == [None]
        await new.append([transition("fence")])
        with pytest.raises(Deposed):
            await old.append([transition("late")])

        assert records_of(await read_all(log)) == flat([transition("between"), transition("fence")])

    async def test_a_cluster_without_the_fence_is_refused(self, kafka_broker: Broker, topic: str) -> None:
        """Opening tries whether a stale epoch is refused; here the answer to it is forged."""
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
            place = Place(topic=topic, partition=0, limit_bytes=MIB, append_limit_ms=10_000)
            last = KafkaWriter(link, place, Stamp(producer_id=10**12, producer_epoch=32_766, epoch_base=0))
            await last.append([transition("last of its id")])

        epochs = []
        for name in ("a", "b", "c"):
            writer = await log.claim(0)
            epochs.append(writer.epoch)
            await writer.append([transition(name)])

        assert epochs == [32_767, 32_768, 32_769]


class TestLostAnswers:
    @pytest.mark.parametrize("losses", [1, 3])
    async def test_an_append_whose_acknowledgement_is_lost_is_made_again_and_is_there_once(
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
        """The batch may be there, as it is here; it is sent again until the answer is plain."""
        writer = await log.claim(0)
        log.proxy.forge_errors(ApiKey.PRODUCE, error.value, error.value)

        assert list(await writer.append([transition("a")])) == [None]

        assert records_of(await read_all(log)) == list(transition("a"))

    async def test_a_duplicate_sequence_number_means_that_it_is_there(self, log: ProxiedKafkaEventLog) -> None:
        """The broker says so of a batch that it no longer remembers the offset of."""
        writer = await log.claim(0)
        log.proxy.forge_errors(
            ApiKey.PRODUCE, ErrorCode.request_timed_out.value, ErrorCode.duplicate_sequence_number.value
        )

        assert list(await writer.append([transition("a")])) == [None]
        assert list(await writer.append([transition("b")])) == [None]

        assert records_of(await read_all(log)) == flat([transition("a"), transition("b")])

    @pytest.mark.parametrize("error", [ErrorCode.invalid_producer_epoch, ErrorCode.producer_fenced])
    async def test_a_fenced_writer_is_deposed_at_once(self, log: ProxiedKafkaEventLog, error: ErrorCode) -> None:
        """It is not asked a second time."""
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
    async def test_an_answer_that_tells_nothing_for_sure_ends_the_writer(
        self, log: ProxiedKafkaEventLog, codes: list[ErrorCode]
    ) -> None:
        """Too large the second time does not say that the first time came to nothing."""
        writer = await log.claim(0)
        log.proxy.forge_errors(ApiKey.PRODUCE, *(code.value for code in codes))

        with pytest.raises(LogUnavailable, match=codes[-1].name.upper()):
            await writer.append([transition("a")])
        with pytest.raises(LogUnavailable):
            await writer.append([transition("b")])

        assert records_of(await read_all(log)) == list(transition("a"))

    async def test_a_writer_whose_append_was_cancelled_appends_no_more(self, log: ProxiedKafkaEventLog) -> None:
        """Its next batch would have the sequence of one that may be there, and be taken for it."""
        writer = await log.claim(0)
        log.proxy.lose_answers(ApiKey.PRODUCE, math.inf)
        appends_before = log.proxy.requests.count(ApiKey.PRODUCE)
        appending = asyncio.create_task(writer.append([transition("a")]))
        await until(lambda: log.proxy.requests.count(ApiKey.PRODUCE) > appends_before)
        appending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await appending
        log.proxy.lose_answers(ApiKey.PRODUCE, 0)

        with pytest.raises(LogUnavailable, match="did not end"):
            await writer.append([transition("b")])
        await (await log.claim(0)).append([transition("fence")])
        assert records_of(await read_all(log)) == flat([transition("a"), transition("fence")])

    async def test_reading_goes_on_with_the_next_leader(self, log: ProxiedKafkaEventLog) -> None:
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

    async def test_a_log_shorter_than_it_was_is_no_complete_reading(
        self, log: ProxiedKafkaEventLog, kafka_broker: Broker, topic: str
    ) -> None:
        """What ends before the known end has lost records, and is not taken for the whole."""
        await (await log.claim(0)).append([transition("a")])
        async with followed(kafka_broker, topic) as link:
            reading = read(link, topic, 0, start=0, end=5, limit_ms=300)
            assert records_of(await anext(reading)) == list(transition("a"))
            with pytest.raises(LogUnavailable, match="ends at 2, before 5"):
                await anext(reading)
            with pytest.raises(LogUnavailable, match="ends before offset 3"):
                await anext(read(link, topic, 0, start=3, end=5, limit_ms=300))


class TestLimit:
    async def test_a_limit_lowered_while_the_log_is_open_refuses_the_large_alone(
        self, log: ProxiedKafkaEventLog, admin: AIOKafkaAdminClient, topic: str
    ) -> None:
        """The broker refuses the batch that holds them all; what fits is stored, in order."""
        writer = await log.claim(0)
        await set_configs(admin, topic, {"max.message.bytes": "20000"})
        large = (Record(b"large", incompressible(30_000, "large")),)
        while await writer.append([large]) == [None]:  # until the broker has taken the new limit up
            pass
        before = await log.end_offset(0)

        names = [str(number) for number in range(9)]
        transitions = [*map(transition, names[:5]), large, *map(transition, names[5:])]
        verdicts = list(await writer.append(transitions))

        assert isinstance(verdicts[5], AppendRefused)
        assert verdicts[5].size_bytes > 30_000
        assert [verdict for verdict in verdicts if verdict is not verdicts[5]] == [None] * 9
        assert records_of(await read_all(log, start=before)) == flat(map(transition, names))

    async def test_the_limit_is_on_the_compressed_batch(self, open_log: OpenKafkaLog) -> None:
        """A transition of twice the limit that compresses well is stored."""
        log = await open_log(partitions=1, batch_bytes_max=MIB)
        writer = await log.claim(0)
        repetitive = tuple(Record(b"%d" % n, b"orders-0" * 1024) for n in range(256))

        assert list(await writer.append([transition("a"), repetitive, transition("b")])) == [None] * 3

        assert records_of(await read_all(log)) == flat([transition("a"), repetitive, transition("b")])

    async def test_a_limit_below_ours_is_warned_of(
        self, open_log: OpenKafkaLog, admin: AIOKafkaAdminClient, topic: str
    ) -> None:
        """It is not refused: small groups are well with it."""
        await create_topic(admin, topic, {"max.message.bytes": "100000"})

        log = await open_log()

        assert len(log.warnings) == 1
        assert "takes batches of 100000 bytes, the settings say 67108864" in log.warnings[0]
        writer = await log.claim(0)
        appends_before = log.proxy.requests.count(ApiKey.PRODUCE)
        (verdict,) = await writer.append([(Record(b"large", incompressible(200_000, "large")),)])
        assert isinstance(verdict, AppendRefused)
        assert verdict.limit_bytes == 100_000
        assert log.proxy.requests.count(ApiKey.PRODUCE) == appends_before


class TestCompaction:
    @pytest.mark.parametrize(("deleted", "left"), [(3, [3, 4]), (5, [])])
    async def test_reading_begins_where_the_log_begins(
        self, log: ProxiedKafkaEventLog, admin: AIOKafkaAdminClient, topic: str, *, deleted: int, left: list[int]
    ) -> None:
        """What an operator has deleted is a gap like any other; also a log emptied so can be claimed, and goes on."""
        await (await log.claim(0)).append([transition("a", records=5)])
        await set_configs(admin, topic, {"cleanup.policy": "delete"})
        await admin.delete_records({TopicPartition(topic, 0): RecordsToDelete(before_offset=deleted)})

        assert [one.offset for one in await read_all(log)] == left
        await (await log.claim(0)).append([transition("b", records=1)])
        assert [one.offset for one in await read_all(log)] == [*left, 5]

    async def test_reading_passes_over_the_gaps_that_compaction_leaves(
        self, open_log: OpenKafkaLog, admin: AIOKafkaAdminClient, topic: str
    ) -> None:
        """The last value of each key is there, at its old offset; the end is where it was."""
        compacted_at_once = {
            "min.compaction.lag.ms": "0",
            "segment.ms": "1",
            "min.cleanable.dirty.ratio": "0.01",
            "delete.retention.ms": "0",
        }
        await create_topic(admin, topic, compacted_at_once, partitions=1)
        log = await open_log(audit_window_ms=0)
        writer = await log.claim(0)
        for number in range(20):
            await writer.append(
                [(Record(b"key", b"%d" % number), Record(b"gone", b"%d" % number), Record(b"gone", None))]
            )
        end = await log.end_offset(0)

        first = await compacted(log, records_max=20)
        part = await read_all(log, start=1, end=50)
        last = await read_all(log)  # compaction may have gone on meanwhile

        assert await log.end_offset(0) == end == 60
        assert [(one.offset, one.value) for one in last if one.key == b"key"][-1] == (57, b"19")
        assert {one.offset for one in last} <= {one.offset for one in first} < set(range(60))
        assert {one.offset for one in last} & set(range(1, 50)) <= {one.offset for one in part} <= set(range(1, 50))


@pytest.mark.parametrize("ended", [False, True], ids=["before", "meanwhile"])
async def test_a_log_that_was_closed_appends_and_reads_no_more(log: ProxiedKafkaEventLog, *, ended: bool) -> None:
    """Whoever still holds its writer is told so, also one whose append is on its way."""
    writer = await log.claim(0)
    log.proxy.lose_answers(ApiKey.PRODUCE, math.inf)
    appending = asyncio.create_task(writer.append([transition("a")])) if ended else None
    await until(lambda: appending is None or log.proxy.requests[-1] == ApiKey.PRODUCE)

    await log.close()

    with pytest.raises(LogUnavailable):
        await (appending or writer.append([transition("a")]))
    with pytest.raises(LogUnavailable):
        await read_all(log)


async def test_another_client_reads_the_same(log: ProxiedKafkaEventLog, kafka_broker: Broker, topic: str) -> None:
    """What we write is plain Kafka: compressed and small batches, tombstones, empty values, times."""
    writer = await log.claim(1)
    large = tuple(Record(b"%d" % n, b"value" * 100) for n in range(100))
    await writer.append([transition("a"), (Record(b"gone", None), Record(b"empty", b""))])
    await writer.append([large])
    ours = [(one.offset, one.timestamp_ms, one.key, one.value) for one in await read_all(log, 1)]

    consumer = AIOKafkaConsumer(bootstrap_servers=kafka_broker.bootstrap, isolation_level="read_committed")
    await consumer.start()
    partition = TopicPartition(topic, 1)
    consumer.assign([partition])
    await consumer.seek_to_beginning(partition)
    theirs: list[Any] = []
    while len(theirs) < len(ours):
        fetched = await consumer.getmany(partition, timeout_ms=10_000)
        assert fetched, "nothing more came"
        theirs += [(one.offset, one.timestamp, one.key, one.value) for one in fetched[partition]]
    await consumer.stop()

    assert theirs == ours
