"""The Kafka event log: one compacted topic, whose broker refuses deposed writers.

Opens and closes the log, and has the methods of its partitions. The other modules of the package are its parts.

Brokers refuse a stale epoch, but their documentation does not promise it. So each opening for writing verifies it on
this cluster, in a few milliseconds, on the scratch topic `<topic>_fencing_probe`.
"""

import contextlib
import re
import uuid
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from copy import copy
from functools import partial

import msgspec

from muster.events.kafka.addresses import KnownBrokers
from muster.events.kafka.errors import LinkError
from muster.events.kafka.exchange import SupportedApi
from muster.events.kafka.link import is_muster
from muster.events.kafka.security import NOT_SECURED, KafkaSecurity
from muster.events.log.base import (
    Deposed,
    Ends,
    LogError,
    LogMismatch,
    LogMissing,
    LogWriter,
    OwnersMarks,
    Repeats,
    SignOfLife,
)
from muster.events.log.kafka import signs
from muster.events.log.kafka.client.errors import retry
from muster.events.log.kafka.client.link import KafkaLink, Timeouts
from muster.events.log.kafka.client.settings import (
    AUDIT_WINDOW_MS,
    BATCH_BYTES_MAX,
    Configs,
    Guarantees,
    TopicFacts,
    TopicPlan,
    deleted_beginning,
)
from muster.events.log.kafka.client.versions import READING, WRITING, check_versions
from muster.events.log.kafka.marks import Marks, origin_of
from muster.events.log.kafka.names import PROBE_SUFFIX, warning_of_new_topic
from muster.events.log.kafka.origin import Contents, check_origin, notes_of, refuse_foreign
from muster.events.log.kafka.producer import WriterConfig, claim, last_owner, prepare_claim
from muster.events.log.kafka.reader import (
    begin_offset,
    begin_offsets,
    end_offset,
    end_offsets,
    newest_stamp,
    read,
    read_raw,
)
from muster.events.log.kafka.resent_batches import repeat
from muster.events.log.kafka.topic import (
    check_topic,
    cleanup_policy,
    create_topic,
    created_topic_facts,
    topic_facts,
    topic_flaws,
)
from muster.events.log.wall_clock import wall_clock_ms
from muster.events.records import FORMAT_LEVEL, SIGNS_OF_LIFE_FROM_LEVEL, RawRecord, Record, StoredRecord

_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9._-]")

DEFAULT_TIMEOUTS = Timeouts()


class KafkaEventLog:
    """An EventLog in a Kafka topic. Opened for reading, it creates no topic, checks no settings, claims nothing."""

    def __init__(
        self,
        bootstrap_servers: Sequence[str],
        topic: str,
        *,
        partitions: int | None = None,
        replication: int | None = None,
        audit_window_ms: int = AUDIT_WINDOW_MS,
        batch_bytes_max: int = BATCH_BYTES_MAX,
        timeouts: Timeouts = DEFAULT_TIMEOUTS,
        security: KafkaSecurity = NOT_SECURED,
        read_only: bool = False,
        new_format_level: int = FORMAT_LEVEL,
        wall_ms: Callable[[], int] = wall_clock_ms,
        keeps_times: bool = False,
        known_brokers: KnownBrokers | None = None,
    ) -> None:
        """`new_format_level`: that of a log without records. `keeps_times`: records have the times of `wall_ms`.

        `known_brokers`: shared with other links of the process.
        """
        self._plan = TopicPlan(
            name=topic,
            partitions=partitions,
            replication=replication,
            audit_window_ms=audit_window_ms,
            batch_bytes_max=batch_bytes_max,
            keeps_times=keeps_times,
        )
        self._timeout_ms = timeouts.delivery_timeout_ms
        self._read_only = read_only
        self._wall_ms = wall_ms
        self._link = KafkaLink(bootstrap_servers, security, timeouts, known_brokers)
        self._facts = TopicFacts(partitions=0, replication=0)
        self._guarantees: Guarantees | None = None
        self._new_format_level = new_format_level
        self._origin = origin_of(None)
        self._home: str | None = None
        """The cluster whose owners' records are read."""
        self._known_marks: dict[int, Marks] = {}
        self._probe = topic + PROBE_SUFFIX
        self._follows_signs = False
        self._signs_warning: str | None = None
        self._deletion_warning: str | None = None
        self._is_new = False
        self.created: list[str] = []
        """The topics that were missing, and were created when the log was opened."""
        self._history_is_gone = False
        """True if a log of this name existed before, and its topic had to be recreated."""

    @property
    def location(self) -> str:
        return self._plan.name

    @property
    def identity(self) -> str:
        """The ids of cluster and topic; with brokers before 2.8, which have no topic ids, the topic's name."""
        known = f"{self._facts.cluster_id or ''}.{self._facts.topic_id or self._plan.name}"
        return _NOT_IN_NAMES.sub("_", known)

    @property
    def partitions(self) -> int:
        """0 before the log is open."""
        return self._facts.partitions

    @property
    def format_level(self) -> int:
        """See EventLog: as noted by the last owners."""
        return self._origin.format_level

    @property
    def cluster_id(self) -> str | None:
        """The id of the topic's cluster; None before the log is open, and if brokers do not report it."""
        return self._facts.cluster_id

    @property
    def warnings(self) -> Sequence[str]:
        of_settings = self._guarantees.warnings if self._guarantees else ()
        made_anew = warning_of_new_topic(self._plan.name) if self._history_is_gone else None
        return (*filter(None, (made_anew, self._signs_warning, self.deletion_warning)), *of_settings)

    @property
    def deletion_warning(self) -> str | None:
        """See CutLog."""
        return self._deletion_warning

    @property
    def trouble(self) -> str | None:
        """Why appends fail: the topic is gone, or was replaced. Unanswered appends end on their own."""
        refusal = self._link.refusal(self._plan.name)
        return None if refusal is None else str(refusal)

    async def check_in_place(self) -> None:
        """See ReplaceableLog: asks the brokers for the topic's id. Raises LogReplaced."""
        await retry(self._link.refresh, timeout_ms=self._timeout_ms)
        refusal = self._link.refusal(self._plan.name)
        if refusal is not None:
            raise copy(refusal)

    def stored_by(self, partition: int) -> str:
        """Return the partition leader, as far as it is known."""
        return self._link.leader_said(self._plan.name, partition)

    @property
    def supports_takeover(self) -> bool:
        return True

    @property
    def claim_renewal_ms(self) -> int | None:
        """See EventLog; also None if the brokers do not report how long they keep a producer id."""
        return self._guarantees.claim_renewal_ms if self._guarantees else None

    async def open(self) -> None:
        """See EventLog. After an error, everything is closed again."""
        self._follows_signs = False
        async with AsyncExitStack() as undo:
            undo.push_async_callback(self.close)
            await self._link.open()
            if self._read_only:
                self._facts = await self._existing_topic()
            else:
                self._facts = await self._open_for_writing()
            self._deletion_warning = await self._deleted_beginning()
            undo.pop_all()

    async def close(self) -> None:
        await self._link.close()

    async def flaws(self) -> Sequence[str]:
        """See WatchedLog: reads the configs again, and the first offsets of the partitions."""
        facts = await topic_facts(self._link, self._plan.name, timeout_ms=self._timeout_ms)
        if facts is None:
            return []  # this is `trouble`
        found = await topic_flaws(self._link, self._plan, facts, timeout_ms=self._timeout_ms)
        return [*filter(None, (await self._deleted_beginning(),)), *found]

    async def _deleted_beginning(self) -> str | None:
        name, partitions = self._plan.name, range(self._facts.partitions)
        begins = await begin_offsets(self._link, name, partitions, timeout_ms=self._timeout_ms)
        return deleted_beginning(name, begins)

    async def begin_offset(self, partition: int) -> int:
        return await begin_offset(self._link, self._plan.name, partition, timeout_ms=self._timeout_ms)

    async def raise_format_level(self) -> None:
        self._origin = origin_of(self._facts.cluster_id)

    async def claim(self, partition: int) -> LogWriter:
        """See EventLog. Raises LogUnavailable."""
        config = self._writer_config(self._plan.name, partition)
        writer = await claim(self._link, config)
        self._known_marks.pop(partition, None)
        if (marks := writer.marks) is not None:
            self._known_marks[partition] = marks
        return writer

    async def prepare_claim(self, partition: int) -> None:
        """See FollowedLog: a claim would open a connection and look up a coordinator."""
        with contextlib.suppress(LinkError, LogError):
            await prepare_claim(self._link, self._writer_config(self._plan.name, partition))

    def repeat(self, writers: Sequence[LogWriter], *, timeout_ms: int) -> Repeats:
        return repeat(self._link, self._plan.name, writers, timeout_ms=timeout_ms)

    async def has_owners_record(self, partition: int) -> bool:
        return await last_owner(self._link, self._writer_config(self._plan.name, partition)) is not None

    async def leave_sign_of_life(self, sign: SignOfLife, *, timeout_ms: int) -> None:
        """See EventLog: a record in the topic of the fencing probe (signs.py)."""
        await self._follow_signs(timeout_ms)
        origin, timestamp_ms = self._origin.encode(), self._wall_ms()
        await signs.leave(
            self._link, self._probe, sign, origin=origin, timestamp_ms=timestamp_ms, timeout_ms=timeout_ms
        )

    async def last_signs_of_life(self, *, timeout_ms: int) -> Mapping[str, int]:
        await self._follow_signs(timeout_ms)
        return await signs.read_last(self._link, self._probe, timeout_ms=timeout_ms)

    async def _follow_signs(self, timeout_ms: int) -> None:
        if not self._follows_signs:
            await retry(lambda: self._link.follow((self._plan.name, self._probe)), timeout_ms=timeout_ms)
            self._follows_signs = True

    async def end_offset(self, partition: int) -> int:
        return await end_offset(self._link, self._plan.name, partition, timeout_ms=self._timeout_ms)

    @property
    def deletions_kept_ms(self) -> int | None:
        """See FollowedLog; None if the brokers do not report it."""
        return self._guarantees.deletions_kept_ms if self._guarantees else None

    def end_offsets(self, partitions: Sequence[int], *, timeout_ms: int) -> Ends:
        return end_offsets(self._link, self._plan.name, partitions, timeout_ms=timeout_ms)

    async def read(
        self, partition: int, *, start: int = 0, end: int | None = None
    ) -> AsyncIterator[Sequence[StoredRecord]]:
        """See EventLog. The default end is the end when the first chunk is requested. Raises LogUnavailable."""
        # A given end was reported by a broker before; a leader that does not know it yet will.
        until, marks = await self.end_offset(partition) if end is None else end, await self._marks(partition)
        link, topic, timeout_ms = self._link, self._plan.name, self._timeout_ms
        async for chunk in read(link, topic, partition, start=start, end=until, timeout_ms=timeout_ms, marks=marks):
            yield chunk

    async def read_raw(
        self, partition: int, *, start: int = 0, end: int | None = None
    ) -> AsyncIterator[Sequence[RawRecord]]:
        """See RawLog; the end is as in `read`."""
        until, marks = await self.end_offset(partition) if end is None else end, await self._marks(partition)
        link, topic, timeout_ms = self._link, self._plan.name, self._timeout_ms
        async for chunk in read_raw(link, topic, partition, start=start, end=until, timeout_ms=timeout_ms, marks=marks):
            yield chunk

    async def owners_marks(self, partition: int) -> OwnersMarks:
        """See RawLog."""
        marks = await self._marks(partition)
        return OwnersMarks(since=marks.since, native_from=marks.native_from, home=marks.home)

    async def _marks(self, partition: int) -> Marks:
        """Return the offsets from which on records without a mark, or not native, are foreign, as far as noted."""
        unknown = Marks(home=self._home)
        if self._home != self._facts.cluster_id:
            return unknown
        if partition not in self._known_marks:
            newest = await newest_stamp(
                self._link, self._plan.name, partition, home=self._home, timeout_ms=self._timeout_ms
            )
            if newest is None or newest.marked_from is None:
                return unknown
            self._known_marks[partition] = Marks(
                since=newest.marked_from, native_from=newest.native_from, home=self._home
            )
        return msgspec.structs.replace(self._known_marks[partition])

    async def _follow(self, *topics: str) -> None:
        await retry(lambda: self._link.follow(topics), timeout_ms=self._timeout_ms)

    async def _check_versions(self, needed: Sequence[SupportedApi]) -> None:
        link = self._link
        for node_id in link.brokers():
            offered = await link.ask_while_named(node_id, partial(link.versions, node_id), timeout_ms=self._timeout_ms)
            if offered is not None:
                check_versions(link.broker_said(node_id), offered, needed)

    async def _existing_topic(self) -> TopicFacts:
        await self._check_versions(READING)
        facts = await topic_facts(self._link, self._plan.name, timeout_ms=self._timeout_ms)
        if facts is None:
            raise LogMissing(f"topic {self._plan.name} does not exist, and a log opened for reading creates none")
        contents = await self._look_into(facts)
        if contents is Contents.NOTHING:
            await self._check_was_opened()
        found = await notes_of(
            self._link, self._plan.name, facts.partitions, facts.cluster_id, timeout_ms=self._timeout_ms
        )
        origin = found.origin
        format_level = self._new_format_level if contents is Contents.NOTHING else found.format_level
        self._origin = origin_of(facts.cluster_id, format_level)
        self._home = origin.cluster_id if origin is not None and origin.cluster_id else facts.cluster_id
        return facts

    async def _look_into(self, facts: TopicFacts) -> Contents:
        """Check the contents of an existing topic. Raises LogMismatch if they are not Muster's."""
        await self._follow(name := self._plan.name)
        return await refuse_foreign(
            self._link, name, facts.partitions, was_opened=self._was_opened, timeout_ms=self._timeout_ms
        )

    async def _check_was_opened(self) -> None:
        """Check that an empty topic is a log: an owner has opened it, and created the probe's topic.

        A reader without access to that topic checks the cleanup policy, which may not be known either. Raises
        LogMissing.
        """
        name, link, timeout_ms = self._plan.name, self._link, self._timeout_ms
        try:
            was_opened = await topic_facts(link, self._probe, timeout_ms=timeout_ms) is not None
            why = f"no topic {self._probe}, which Muster creates"
        except LogMismatch:
            policy = await cleanup_policy(link, name, timeout_ms=timeout_ms)
            was_opened = policy is None or "compact" in policy
            why = f"cleanup.policy={policy}, and an event log is compacted"
        if not was_opened:
            raise LogMissing(
                f"topic {name} is empty, and no Muster has opened it as its event log: there is {why}. If it was"
                " created for one, start that; else give --log the name of an event log"
            )

    async def _was_opened(self) -> bool:
        """Return whether a log of this name was opened before: then the probe's topic exists."""
        try:
            return await topic_facts(self._link, self._probe, timeout_ms=self._timeout_ms) is not None
        except LogMismatch:  # readers do not need access to it
            return False

    async def _is_lost(self) -> bool:
        """Return whether the missing topic existed before; checked twice, as another process may be creating it now."""
        return (
            await topic_facts(self._link, self._probe, timeout_ms=self._timeout_ms) is not None
            and await topic_facts(self._link, self._plan.name, timeout_ms=self._timeout_ms) is None
        )

    async def _open_for_writing(self) -> TopicFacts:
        link, plan, probe = self._link, self._plan, self._probe
        await self._check_versions(WRITING)
        if await retry(partial(is_muster, link), timeout_ms=self._timeout_ms):
            brokers = "the brokers of the Kafka cluster behind it"
            raise LogMismatch(f"{link.asked_at} is a Muster, not a broker; name {brokers}")
        found = await topic_facts(link, plan.name, timeout_ms=self._timeout_ms)
        contents = Contents.NOTHING if found is None else await self._look_into(found)
        self._history_is_gone = found is None and await self._is_lost()
        facts = found or await self._created(plan.name, plan.configs(), partitions=plan.partitions)
        self._is_new = contents is Contents.NOTHING
        self._guarantees = await check_topic(
            link, plan, facts, is_ours=contents is Contents.OURS, timeout_ms=self._timeout_ms
        )
        await self._follow(plan.name)
        newest = origin_of(facts.cluster_id)
        notes = await check_origin(link, plan.name, facts.partitions, newest, timeout_ms=self._timeout_ms)
        self._origin = origin_of(facts.cluster_id, self._new_format_level if self._is_new else notes.format_level)
        self._home = facts.cluster_id
        if await topic_facts(link, probe, timeout_ms=self._timeout_ms) is None:
            await self._created(probe, signs.PROBE_CONFIGS, partitions=1)
        await self._follow(plan.name, probe)
        await self._prove_fencing(self._writer_config(probe, 0))
        if self.format_level >= SIGNS_OF_LIFE_FROM_LEVEL:
            policy = await cleanup_policy(link, probe, timeout_ms=self._timeout_ms)
            self._signs_warning = signs.warning_of(probe, policy, link.asked_at)
        await self._follow(plan.name)
        return facts

    async def _created(self, name: str, configs: Configs, *, partitions: int | None) -> TopicFacts:
        """Create the topic, unless another process does so at the same time, and describe it."""
        link, timeout_ms = self._link, self._timeout_ms
        if await create_topic(
            link, name, configs, partitions=partitions, replication=self._plan.replication, timeout_ms=timeout_ms
        ):
            self.created.append(name)
        return await created_topic_facts(link, name, timeout_ms=timeout_ms)

    async def _prove_fencing(self, config: WriterConfig) -> None:
        # A separate transactional.id, or two processes that start at the same time would depose each other.
        transactional_id = f"{config.transactional_id}-{uuid.uuid4()}"
        stale = await claim(self._link, config, transactional_id=transactional_id)
        newer = await claim(self._link, config, transactional_id=transactional_id)
        transition = (Record(b"probe", None),)
        await newer.append([transition])
        try:
            await stale.append([transition])
        except Deposed:
            return
        raise LogMismatch(
            f"the cluster at {self._link.asked_at} accepts the append of a deposed"
            f" writer (tried on topic {config.topic}), so it cannot keep an event log; give --log another"
            " cluster, or a file"
        )

    def _writer_config(self, topic: str, partition: int) -> WriterConfig:
        if self._guarantees is None:
            raise LogMismatch(f"topic {self._plan.name} is not open for writing: nothing can be claimed")
        is_the_logs = topic == self._plan.name
        return WriterConfig(
            topic=topic,
            partition=partition,
            limit_bytes=self._guarantees.batch_bytes_max,
            delivery_timeout_ms=self._timeout_ms,
            origin=self._origin.encode(),
            partitions=self._facts.partitions if is_the_logs else None,
            is_new=is_the_logs and self._is_new,
            wall_ms=self._wall_ms,
        )
