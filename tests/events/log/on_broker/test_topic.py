"""The topic of the event log, on a real broker: its partitions, its settings, and the limit on a batch."""

import asyncio
from typing import Any

import pytest
import structlog
from aiokafka import TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, RecordsToDelete

from muster.coordinator.log_settings_watch import LogSettingsWatch
from muster.coordinator.observability.metrics import REGISTRY
from muster.events.log.base import AppendRefused, LogMismatch, LogUnavailable
from muster.events.log.kafka import opening
from muster.events.log.kafka.client.settings import Guarantees
from muster.events.log.kafka.log import KafkaEventLog
from muster.events.log.kafka.topic import check_topic
from muster.events.records import Record
from tests.brokers.broker import Broker
from tests.events.log.kafka_proxy import ApiKey, BrokerProxy
from tests.events.log.on_broker.proxied import OpenKafkaLog, ProxiedKafkaEventLog
from tests.events.log.on_broker.topics import DAY_MS, configs_of, create_topic, set_configs
from tests.events.log.storage import MIB
from tests.events.log.transitions import flat, incompressible, read_all, records_of, transition
from tests.forked import run_muster

pytestmark = pytest.mark.broker


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
        assert configs["message.timestamp.type"] == "LogAppendTime"

    async def test_a_recreated_topic_is_warned_of_although_the_first_attempt_failed_after_creating_it(
        self, kafka_broker: Broker, admin: AIOKafkaAdminClient, topic: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The next attempt finds the topic, but its history is gone all the same."""
        await create_topic(admin, f"{topic}_fencing_probe", {}, partitions=1)
        failures = [LogUnavailable("no broker")]

        async def fails_once(*given: Any, **named: Any) -> Guarantees:
            if failures:
                raise failures.pop()
            return await check_topic(*given, **named)

        monkeypatch.setattr(opening, "check_topic", fails_once)
        log = KafkaEventLog([kafka_broker.bootstrap], topic)
        with pytest.raises(LogUnavailable):
            await log.open()
        await log.open()
        assert log.created == [topic]
        (warning,) = log.warnings
        assert "it was recreated, without the earlier history" in warning
        await log.close()

    async def test_a_recreated_topic_is_another_log(
        self, open_log: OpenKafkaLog, admin: AIOKafkaAdminClient, topic: str
    ) -> None:
        """The topic has the same name, on the same cluster."""
        log = await open_log()
        await log.close()
        await admin.delete_topics([topic])
        async with asyncio.timeout(30):
            while topic in await admin.list_topics():  # noqa: ASYNC110 -- another process is asked
                await asyncio.sleep(0.01)

        again = await open_log()

        assert again.identity != log.identity
        assert again.identity.partition(".")[0] == log.identity.partition(".")[0]

    async def test_owners_that_start_together_make_one_topic(self, open_log: OpenKafkaLog) -> None:
        """Each of them opens it, and proves the fence without deposing the others."""
        logs = await asyncio.gather(*(open_log(partitions=3) for _ in range(4)))

        assert [log.partitions for log in logs] == [3, 3, 3, 3]

    async def test_the_partitions_of_the_topic_are_the_default(
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

        assert f"topic {topic} has 5 partitions, but 8 are expected (" in str(mismatch.value)

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
        """The message names the setting, both values, and the command that mends it, once there are events to keep."""
        setting, found, wanted = contradiction
        await create_topic(admin, topic, {"min.compaction.lag.ms": str(DAY_MS)})
        await (await (await open_log(audit_window_ms=DAY_MS)).claim(0)).append([transition("a")])
        await set_configs(admin, topic, {"min.compaction.lag.ms": str(DAY_MS), setting: found})

        with pytest.raises(LogMismatch) as mismatch:
            await open_log(audit_window_ms=DAY_MS)

        assert f"topic {topic} has {setting}={found}, the settings say {wanted}" in str(mismatch.value)
        assert f"--entity-name {topic} --add-config {setting}={wanted}`" in str(mismatch.value)

    async def test_an_empty_topic_with_other_settings_is_left_alone(
        self, open_log: OpenKafkaLog, admin: AIOKafkaAdminClient, topic: str
    ) -> None:
        """It may have been created for something else: nothing is changed, and both remedies are named."""
        await create_topic(admin, topic, {"cleanup.policy": "delete"})

        with pytest.raises(LogMismatch) as mismatch:
            await open_log()

        assert f"topic {topic} has cleanup.policy=delete, the settings say compact" in str(mismatch.value)
        assert "it holds no events: if it was created for them, run `kafka-configs.sh" in str(mismatch.value)
        assert "else give --log another name" in str(mismatch.value)
        assert f"{topic}_fencing_probe" not in await admin.list_topics()

    async def test_all_contradictions_are_reported_at_once(
        self, open_log: OpenKafkaLog, admin: AIOKafkaAdminClient, topic: str
    ) -> None:
        """So that a topic need not be fixed one start at a time."""
        await create_topic(admin, topic, {"cleanup.policy": "delete", "min.compaction.lag.ms": "1"})

        with pytest.raises(LogMismatch, match=r"partitions.*cleanup\.policy.*min\.compaction\.lag\.ms"):
            await open_log(partitions=7)

    async def test_a_log_opened_for_reading_makes_no_topic(
        self, open_log: OpenKafkaLog, admin: AIOKafkaAdminClient, topic: str
    ) -> None:
        """Also where the cluster makes topics that clients ask for."""
        with pytest.raises(LogMismatch, match=f"topic {topic} does not exist"):
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


class TestWhileItIsServed:
    async def test_settings_changed_by_an_operator_are_found_and_logged_once(
        self, open_log: OpenKafkaLog, admin: AIOKafkaAdminClient, topic: str
    ) -> None:
        """All that a start would refuse: each with the command that puts it right; and that it is right again."""
        log = await open_log(partitions=2)
        watch = LogSettingsWatch(log, log.location, log.warnings)
        await watch.check()
        assert list(watch.flaws) == []
        bad = {"cleanup.policy": "delete", "unclean.leader.election.enable": "true", "max.message.bytes": "1000000"}
        await set_configs(admin, topic, bad)
        with structlog.testing.capture_logs() as lines:
            await watch.check()
            await watch.check()
        assert len(lines) == len(watch.flaws) == 3
        assert {line["log_level"] for line in lines} == {"warning"}
        policy, election, batches = watch.flaws
        assert f"topic {topic} has cleanup.policy=delete" in policy
        assert "--add-config cleanup.policy=compact" in policy
        assert "unclean.leader.election.enable=true" in election
        assert "takes batches of 1000000 bytes" in batches
        assert REGISTRY.get_sample_value("muster_event_log_flaws") == 3
        await set_configs(admin, topic, {"max.message.bytes": str(64 * MIB)})
        with structlog.testing.capture_logs() as lines:
            await watch.check()
        assert list(watch.flaws) == []
        assert [line["log_level"] for line in lines] == ["info"]
        assert REGISTRY.get_sample_value("muster_event_log_flaws") == 0

    async def test_records_that_were_deleted_at_the_beginning_are_missed(
        self, open_log: OpenKafkaLog, admin: AIOKafkaAdminClient, topic: str, kafka_broker: Broker
    ) -> None:
        """Also where none is left: by the process that serves, by the next start, and by readers, with exit code 3."""
        log = await open_log(partitions=2)
        watch = LogSettingsWatch(log, log.location, log.warnings)
        writer = await log.claim(1)
        await writer.append([(Record(b"k", b"v"),)] * 5)
        await set_configs(admin, topic, {"cleanup.policy": "delete"})
        end = await log.end_offset(1)
        await admin.delete_records({TopicPartition(topic, 1): RecordsToDelete(before_offset=end)})
        await set_configs(admin, topic, {"max.message.bytes": str(64 * MIB)})
        text = f"the beginning of topic {topic} was deleted (partition 1 up to offset {end})"
        await watch.check()
        assert [text in flaw for flaw in watch.flaws] == [True]
        again = await open_log(partitions=2)
        assert [text in warning for warning in again.warnings] == [True]
        url = f"kafka://{kafka_broker.bootstrap}/{topic}"
        for command in (["verify"], ["groups"], ["why", "orders"]):
            ran = await asyncio.to_thread(run_muster, "replay", *command, "--log", url)
            assert (ran.returncode, text in ran.stderr) == (3, True), (command, ran)
            assert "is empty" not in ran.stdout
            assert "is consistent" not in ran.stdout
