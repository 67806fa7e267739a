"""The Kafka event log: one compacted topic, whose broker refuses deposed writers.

Implements the log's methods, most of which concern one partition; the other modules of the package are its parts.
"""

import contextlib
import re
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from copy import copy

import msgspec

from muster.events.kafka.addresses import KnownBrokers
from muster.events.kafka.errors import LinkError
from muster.events.kafka.security import NOT_SECURED, KafkaSecurity
from muster.events.log.base import Ends, LogError, LogWriter, OwnersMarks, Repeats, SignOfLife
from muster.events.log.kafka import signs
from muster.events.log.kafka.client.errors import retry
from muster.events.log.kafka.client.link import KafkaLink, Timeouts
from muster.events.log.kafka.client.settings import (
    AUDIT_WINDOW_MS,
    BATCH_BYTES_MAX,
    TopicFacts,
    TopicPlan,
    deleted_beginning,
)
from muster.events.log.kafka.marks import Marks, origin_of
from muster.events.log.kafka.names import PROBE_SUFFIX, warning_of_new_topic
from muster.events.log.kafka.opening import Opened, Opening
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
from muster.events.log.kafka.topic import topic_facts, topic_flaws
from muster.events.log.wall_clock import wall_clock_ms
from muster.events.records import FORMAT_LEVEL, RawRecord, StoredRecord

_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9._-]")

DEFAULT_TIMEOUTS = Timeouts()

_NOT_OPENED = Opened(facts=TopicFacts(partitions=0, replication=0), origin=origin_of(None))


class KafkaEventLog:
    """An EventLog in a Kafka topic. When opened for reading, it creates no topic, checks no settings and claims
    nothing.
    """

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
        """`new_format_level`: the format level of a log without records. `keeps_times`: records have the times of
        `wall_ms`.

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
        self._opening = Opening(
            self._link,
            self._plan,
            new_format_level=new_format_level,
            timeout_ms=self._timeout_ms,
            wall_ms=wall_ms,
        )
        self._opened = _NOT_OPENED
        self._known_marks: dict[int, Marks] = {}
        self._probe = topic + PROBE_SUFFIX
        self._follows_signs = False
        self._deletion_warning: str | None = None

    @property
    def created(self) -> Sequence[str]:
        """The topics that were missing, and were created when the log was opened."""
        return self._opening.created

    @property
    def location(self) -> str:
        return self._plan.name

    @property
    def identity(self) -> str:
        """The ids of cluster and topic; with brokers before 2.8, which have no topic ids, the topic's name."""
        known = f"{self._opened.facts.cluster_id or ''}.{self._opened.facts.topic_id or self._plan.name}"
        return _NOT_IN_NAMES.sub("_", known)

    @property
    def partitions(self) -> int:
        """0 before the log is open."""
        return self._opened.facts.partitions

    @property
    def format_level(self) -> int:
        """See EventLog: as noted by the last owners."""
        return self._opened.origin.format_level

    @property
    def cluster_id(self) -> str | None:
        """The id of the topic's cluster; None before the log is open, and if brokers do not report it."""
        return self._opened.facts.cluster_id

    @property
    def warnings(self) -> Sequence[str]:
        opened = self._opened
        of_settings = opened.guarantees.warnings if opened.guarantees else ()
        recreated = warning_of_new_topic(self._plan.name) if self._opening.history_is_gone else None
        return (*filter(None, (recreated, opened.signs_warning, self.deletion_warning)), *of_settings)

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

    @property
    def last_failure(self) -> str | None:
        """The reason why a request last failed; None while none has."""
        return self._link.last_failure

    def stored_by(self, partition: int) -> str:
        """Return the partition leader, as far as it is known."""
        return self._link.leader_said(self._plan.name, partition)

    @property
    def supports_takeover(self) -> bool:
        return True

    @property
    def claim_renewal_ms(self) -> int | None:
        """See EventLog; also None if the brokers do not report how long they keep a producer id."""
        guarantees = self._opened.guarantees
        return guarantees.claim_renewal_ms if guarantees else None

    async def open(self) -> None:
        """See EventLog. After an error, everything is closed again."""
        self._follows_signs = False
        async with AsyncExitStack() as undo:
            undo.push_async_callback(self.close)
            await self._link.open()
            opening = self._opening.for_reading() if self._read_only else self._opening.for_writing()
            self._opened = await opening
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
        name, partitions = self._plan.name, range(self._opened.facts.partitions)
        begins = await begin_offsets(self._link, name, partitions, timeout_ms=self._timeout_ms)
        return deleted_beginning(name, begins)

    async def begin_offset(self, partition: int) -> int:
        return await begin_offset(self._link, self._plan.name, partition, timeout_ms=self._timeout_ms)

    async def raise_format_level(self) -> None:
        origin = origin_of(self._opened.facts.cluster_id)
        self._opened = msgspec.structs.replace(self._opened, origin=origin)

    async def claim(self, partition: int) -> LogWriter:
        """See EventLog. Raises LogUnavailable."""
        config = self._writer_config(partition)
        writer = await claim(self._link, config)
        self._known_marks.pop(partition, None)
        if (marks := writer.marks) is not None:
            self._known_marks[partition] = marks
        return writer

    async def prepare_claim(self, partition: int) -> None:
        """See FollowedLog: a claim would open a connection and look up a coordinator."""
        with contextlib.suppress(LinkError, LogError):
            await prepare_claim(self._link, self._writer_config(partition))

    def repeat(self, writers: Sequence[LogWriter], *, timeout_ms: int) -> Repeats:
        return repeat(self._link, self._plan.name, writers, timeout_ms=timeout_ms)

    async def has_owners_record(self, partition: int) -> bool:
        return await last_owner(self._link, self._writer_config(partition)) is not None

    async def leave_sign_of_life(self, sign: SignOfLife, *, timeout_ms: int) -> None:
        """See EventLog: a record in the topic of the fencing probe (signs.py)."""
        await self._follow_signs(timeout_ms)
        origin, timestamp_ms = self._opened.origin.encode(), self._wall_ms()
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
        guarantees = self._opened.guarantees
        return guarantees.deletions_kept_ms if guarantees else None

    def end_offsets(self, partitions: Sequence[int], *, timeout_ms: int) -> Ends:
        return end_offsets(self._link, self._plan.name, partitions, timeout_ms=timeout_ms)

    async def read(
        self, partition: int, *, start: int = 0, end: int | None = None
    ) -> AsyncIterator[Sequence[StoredRecord]]:
        """See EventLog. The default end is the end when the first chunk is requested. Raises LogUnavailable."""
        # A given end was reported by a broker before; a leader that does not know it yet will learn it.
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
        """Return the offsets from which records without a mark, or not native, are foreign, as far as noted."""
        unknown = Marks(home=self._opened.home)
        if self._opened.home != self._opened.facts.cluster_id:
            return unknown
        if partition not in self._known_marks:
            newest = await newest_stamp(
                self._link, self._plan.name, partition, home=self._opened.home, timeout_ms=self._timeout_ms
            )
            if newest is None or newest.marked_from is None:
                return unknown
            self._known_marks[partition] = Marks(
                since=newest.marked_from, native_from=newest.native_from, home=self._opened.home
            )
        return msgspec.structs.replace(self._known_marks[partition])

    def _writer_config(self, partition: int) -> WriterConfig:
        return self._opening.writer_config(self._opened, self._plan.name, partition)
