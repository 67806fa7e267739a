"""The Kafka event log: one compacted topic, whose broker refuses deposed writers.

What belongs here: opening and closing, and what each partition offers. The parts are beside it:

    kafka_link.py      connections, leaders, what is tried again
    kafka_settings.py  which settings the guarantees rest upon (pure)
    kafka_topic.py     the topic: found, made, checked
    kafka_origin.py    of which cluster it is, and which version wrote it
    kafka_versions.py  which requests the brokers must know (pure)
    kafka_security.py  credentials and certificates, by Kafka's names
    kafka_batches.py   transitions as record batches, and back (pure)
    kafka_producer.py  the fenced writer
    kafka_reader.py    offsets and records

That a stale epoch is refused is what the broker does rather than what its documents promise. So each opening for
writing proves it on this cluster, in some milliseconds, on the scratch topic `<topic>_fencing_probe`.
"""

import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack

from events.log.base import Deposed, LogMismatch, LogWriter
from events.log.kafka_link import KafkaLink, retried
from events.log.kafka_origin import check_origin, origin_of
from events.log.kafka_producer import Place, claim
from events.log.kafka_reader import end_offset, read
from events.log.kafka_security import NOT_SECURED, KafkaSecurity
from events.log.kafka_settings import AUDIT_WINDOW_MS, BATCH_BYTES_MAX, Guarantees, TopicFacts, TopicPlan
from events.log.kafka_topic import check_topic, ensure_topic, topic_facts
from events.log.kafka_versions import READING, WRITING, Needed, check_versions
from events.records import Record, StoredRecord

APPEND_LIMIT_MS = 30_000
REQUEST_TIMEOUT_MS = 10_000
_READ_TIMEOUT_MS = 60_000
"""A fetch may carry a batch of 64 MiB over a slow link."""

_PROBE_CONFIGS = {"cleanup.policy": "delete", "retention.ms": "3600000"}


class KafkaEventLog:
    """An EventLog in a Kafka topic. Opened for reading only, it makes no topic, checks no settings, claims nothing."""

    def __init__(
        self,
        bootstrap_servers: Sequence[str],
        topic: str,
        *,
        partitions: int | None = None,
        replication: int | None = None,
        audit_window_ms: int = AUDIT_WINDOW_MS,
        batch_bytes_max: int = BATCH_BYTES_MAX,
        append_limit_ms: int = APPEND_LIMIT_MS,
        request_timeout_ms: int = REQUEST_TIMEOUT_MS,
        security: KafkaSecurity = NOT_SECURED,
        read_only: bool = False,
    ) -> None:
        """`append_limit_ms`: until an append, a claim or a request whose outcome is unknown is given up."""
        self._plan = TopicPlan(
            name=topic,
            partitions=partitions,
            replication=replication,
            audit_window_ms=audit_window_ms,
            batch_bytes_max=batch_bytes_max,
        )
        self._limit_ms = append_limit_ms
        self._read_only = read_only
        # A fetch of 64 MiB may take its time; an append must be known to have failed long before its limit.
        self._writing = KafkaLink(bootstrap_servers, security, request_timeout_ms=request_timeout_ms)
        self._reading = KafkaLink(bootstrap_servers, security, request_timeout_ms=_READ_TIMEOUT_MS)
        self._facts = TopicFacts(partitions=0, replication=0)
        self._guarantees: Guarantees | None = None
        self._origin = origin_of(None)

    @property
    def location(self) -> str:
        return self._plan.name

    @property
    def partitions(self) -> int:
        """0 before the log is open."""
        return self._facts.partitions

    @property
    def warnings(self) -> Sequence[str]:
        return self._guarantees.warnings if self._guarantees else ()

    @property
    def claim_renewal_ms(self) -> int | None:
        """None too when the brokers do not tell."""
        return self._guarantees.claim_renewal_ms if self._guarantees else None

    async def open(self) -> None:
        """See EventLog. What was opened before an error is closed again."""
        async with AsyncExitStack() as undo:
            undo.push_async_callback(self.close)
            await self._reading.open()
            if self._read_only:
                self._facts = await self._existing_topic()
            else:
                await self._writing.open()
                self._facts = await self._open_for_writing()
            await self._reading.follow([self._plan.name])
            undo.pop_all()

    async def close(self) -> None:
        await self._writing.close()
        await self._reading.close()

    async def claim(self, partition: int) -> LogWriter:
        """See EventLog. Raises LogUnavailable."""
        if self._guarantees is None:
            raise LogMismatch(f"topic {self._plan.name} is not open for writing: nothing can be claimed")
        return await claim(self._writing, self._place(self._plan.name, partition))

    async def end_offset(self, partition: int) -> int:
        return await end_offset(self._reading, self._plan.name, partition, limit_ms=self._limit_ms)

    async def read(
        self, partition: int, *, start: int = 0, end: int | None = None
    ) -> AsyncIterator[Sequence[StoredRecord]]:
        """See EventLog. The default end is the end when the first chunk is asked for. Raises LogUnavailable."""
        known_end = await self.end_offset(partition)
        until = known_end if end is None else min(end, known_end)
        chunks = read(self._reading, self._plan.name, partition, start=start, end=until, limit_ms=self._limit_ms)
        async for chunk in chunks:
            yield chunk

    async def _check_versions(self, link: KafkaLink, needed: Sequence[Needed]) -> None:
        for node_id in link.brokers():
            offered = await retried(lambda: link.versions(node_id), limit_ms=self._limit_ms)  # noqa: B023 -- awaited
            check_versions(node_id, offered, needed)

    async def _existing_topic(self) -> TopicFacts:
        await self._check_versions(self._reading, READING)
        facts = await topic_facts(self._reading, self._plan.name, limit_ms=self._limit_ms)
        if facts is None:
            raise LogMismatch(f"there is no topic {self._plan.name}, and a log opened for reading makes none")
        return facts

    async def _open_for_writing(self) -> TopicFacts:
        link, plan, probe = self._writing, self._plan, f"{self._plan.name}_fencing_probe"
        await self._check_versions(link, WRITING)
        facts = await ensure_topic(
            link,
            plan.name,
            plan.configs(),
            partitions=plan.partitions,
            replication=plan.replication,
            limit_ms=self._limit_ms,
        )
        self._guarantees = await check_topic(link, plan, facts, limit_ms=self._limit_ms)
        await link.follow([plan.name])
        self._origin = origin_of(facts.cluster_id)
        await check_origin(link, plan.name, facts.partitions, self._origin, limit_ms=self._limit_ms)
        await ensure_topic(
            link, probe, _PROBE_CONFIGS, partitions=1, replication=plan.replication, limit_ms=self._limit_ms
        )
        await link.follow([plan.name, probe])
        await self._prove_fencing(self._place(probe, 0))
        await link.follow([plan.name])
        return facts

    async def _prove_fencing(self, place: Place) -> None:
        # A transactional.id of its own, or two processes that start at the same time would depose each other.
        transactional_id = f"{place.transactional_id}-{uuid.uuid4()}"
        stale = await claim(self._writing, place, transactional_id=transactional_id)
        newer = await claim(self._writing, place, transactional_id=transactional_id)
        transition = (Record(b"probe", None),)
        await newer.append([transition])
        try:
            await stale.append([transition])
        except Deposed:
            return
        raise LogMismatch(
            f"the cluster at {','.join(self._writing.bootstrap_servers)} accepts the append of a deposed"
            f" writer (tried on topic {place.topic}), so it cannot keep an event log"
        )

    def _place(self, topic: str, partition: int) -> Place:
        assert self._guarantees is not None
        return Place(
            topic=topic,
            partition=partition,
            limit_bytes=self._guarantees.batch_bytes_max,
            append_limit_ms=self._limit_ms,
            origin=self._origin.encode(),
        )
