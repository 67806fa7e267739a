"""The parts of Spark's archiver that do not need Spark: the workers' files, and the source's cluster settings."""

import asyncio
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pytest
from py4j.protocol import Py4JNetworkError

from muster.events.kafka.security import BadSecurity
from muster.events.log.base import LogMismatch, OwnersMarks
from muster.replay.archive.commits import Change, writing
from muster.replay.archive.local import archived_log
from muster.replay.archive.segment import Segment, batch_of
from muster.replay.fleet.archive import streaming
from muster.replay.fleet.archive.connector import connector_options
from muster.replay.fleet.archive.streaming import KafkaSource, TaskPlace, write_segments
from muster.replay.fleet.session import SparkFailed
from tests.replay.archive.logs import NOON, RawMemoryLog, digests, digests_in, filled, more, named

PRIVATE_KEY = "-----BEGIN PRIVATE KEY-----\nabc\n-----END PRIVATE KEY-----"


def of_source(log: RawMemoryLog, partition: int) -> list[pa.RecordBatch]:
    """Return a partition as Spark's source has it: without batch information, a few rows at a time, or none."""
    batch = batch_of(log.records[partition])
    columns = batch.select(["partition", "offset", "timestamp_ms", "key", "headers", "value"])
    return [columns.slice(0, 0), *(columns.slice(at, 3) for at in range(0, columns.num_rows, 3))]


def written(root: Path, log: RawMemoryLog, places: dict[int, TaskPlace]) -> list[Segment]:
    """The segments that one worker for each partition writes."""
    import msgspec

    facts = [
        fact
        for partition in range(log.partitions)
        for batch in write_segments(root, places, NOON, of_source(log, partition))
        for fact in batch.column("segment").to_pylist()
    ]
    return [msgspec.json.decode(fact, type=Segment) for fact in facts]


async def test_workers_write_what_the_driver_commits(tmp_path: Path) -> None:
    """Records that they get twice are left out; their files only count once the driver has committed."""
    log = await filled()
    with writing(tmp_path, make=True) as writer:
        writer.begin(archived_log(log))
        places = {partition: TaskPlace(start=0, day=None) for partition in range(2)}
        writer.commit(Change(action="archive", added=written(tmp_path, log, places)))
        more(log, 2)
        again = {partition: TaskPlace(start=10, day=None) for partition in range(2)}
        written(tmp_path, log, again)  # by workers whose driver died
        writer.commit(Change(action="archive", added=written(tmp_path, log, again)))
    assert await digests_in(tmp_path) == await digests(log)
    assert streaming.BATCH_OFFSETS_MAX > 0
    with writing(tmp_path) as writer:
        assert named(tmp_path) == set(writer.state.segments)


async def test_owners_notes_are_searched_for_once_a_run_and_the_topic_looked_up_before_each_commit(
    tmp_path: Path,
) -> None:
    """The search decodes batches of each partition.

    Without the lookup a topic that was created again would seem to continue.
    """
    log = Searched()
    more(log, 4)
    source = KafkaSource(servers="kafka-1:9092", topic="events", options={}, open_log=lambda: log)
    with writing(tmp_path, make=True, now_ms=NOON) as writer:
        run = streaming._Run(source, writer, lambda _done, _total: None)
        await asyncio.to_thread(run.look_up)
        assert log.searches == []
        for batch_id in range(2):
            await asyncio.to_thread(run.take, batch_of_spark(log), batch_id)
            more(log, 2)
        assert log.searches == [0, 1]
        assert writer.state.marks[1].home == "home"
        log.named = "topic-2"
        with pytest.raises(LogMismatch, match="the archive of another log"):
            await asyncio.to_thread(run.take, batch_of_spark(log), 2)
    assert (run.done().records, isinstance(run.failure, LogMismatch)) == (12, True)


class Searched(RawMemoryLog):
    """Counts the partitions that were searched for the owners' notes."""

    def __init__(self) -> None:
        super().__init__()
        self.searches: list[int] = []

    async def owners_marks(self, partition: int) -> OwnersMarks:
        self.searches.append(partition)
        return await super().owners_marks(partition)


def batch_of_spark(log: RawMemoryLog) -> Any:
    """Return the whole log as a DataFrame whose partitions are processed in this process."""

    def in_turn(work: Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]], _schema: str) -> Any:
        made = [batch for partition in range(log.partitions) for batch in work(of_source(log, partition))]
        rows = [SimpleNamespace(segment=fact) for batch in made for fact in batch.column("segment").to_pylist()]
        return SimpleNamespace(collect=lambda: rows)

    return SimpleNamespace(mapInArrow=in_turn)


def test_a_worker_without_records_writes_nothing(tmp_path: Path) -> None:
    assert list(write_segments(tmp_path, {}, NOON, [])) == []
    assert list(tmp_path.iterdir()) == []


def test_a_cluster_without_security() -> None:
    assert connector_options([], {}) == {"kafka.security.protocol": "PLAINTEXT"}


def test_a_password_is_quoted_and_may_come_from_the_environment() -> None:
    """As with all commands."""
    given = ["security.protocol=sasl_plaintext", "sasl.mechanism=scram-sha-512", "sasl.username=bob"]
    assert connector_options(given, {"MUSTER_KAFKA_CONFIG_SASL_PASSWORD": 'a"b\\c'}) == {
        "kafka.security.protocol": "SASL_PLAINTEXT",
        "kafka.sasl.mechanism": "SCRAM-SHA-512",
        "kafka.sasl.jaas.config": (
            'org.apache.kafka.common.security.scram.ScramLoginModule required username="bob" password="a\\"b\\\\c";'
        ),
    }


def test_certificates_go_along_as_text(tmp_path: Path) -> None:
    """Workers on other machines do not have these files."""
    authorities, both = tmp_path / "ca.pem", tmp_path / "client.pem"
    authorities.write_text("CA")
    both.write_text(f"CHAIN\n{PRIVATE_KEY}\n")
    given = {
        "security.protocol": "SSL",
        "ssl.ca.location": authorities,
        "ssl.certificate.location": both,
        "ssl.endpoint.identification.algorithm": "none",
    }
    assert connector_options([f"{name}={value}" for name, value in given.items()], {}) == {
        "kafka.security.protocol": "SSL",
        "kafka.ssl.endpoint.identification.algorithm": "",
        "kafka.ssl.truststore.type": "PEM",
        "kafka.ssl.truststore.certificates": "CA",
        "kafka.ssl.keystore.type": "PEM",
        "kafka.ssl.keystore.certificate.chain": f"CHAIN\n{PRIVATE_KEY}\n",
        "kafka.ssl.keystore.key": PRIVATE_KEY,
    }


def test_a_key_that_java_does_not_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "key.pem").write_text(PRIVATE_KEY.replace("PRIVATE", "RSA PRIVATE"))
    given = ["security.protocol=SSL", f"ssl.certificate.location={tmp_path}/key.pem"]
    with pytest.raises(BadSecurity, match="openssl pkcs8 -topk8"):
        connector_options(given, {})


def test_a_jvm_that_dies_while_it_archives_is_one_line() -> None:
    """Neither waiting for it nor stopping it is possible then."""

    def dead() -> None:
        raise Py4JNetworkError("Answer from Java side is empty")

    query = SimpleNamespace(awaitTermination=dead, stop=dead)
    with pytest.raises(SparkFailed, match="Spark could not archive: Answer from Java side is empty"):
        streaming._await(query, cast("Any", None))
