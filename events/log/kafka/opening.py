"""Opens the event topic: finds or creates it, and checks all that an event log needs before anything is claimed.

Opening for reading creates nothing, and does not check the settings. Opening for writing also verifies that the brokers
refuse a stale epoch, since their documentation does not promise it. That takes a few milliseconds, on the scratch topic
`<topic>_fencing_probe`.
"""

import uuid
from collections.abc import Callable, Sequence
from functools import partial

import msgspec

from muster.events.kafka.exchange import SupportedApi
from muster.events.kafka.link import is_muster
from muster.events.log.base import Deposed, LogMismatch, LogMissing
from muster.events.log.kafka import signs
from muster.events.log.kafka.client.errors import retry
from muster.events.log.kafka.client.link import KafkaLink
from muster.events.log.kafka.client.settings import Configs, Guarantees, TopicFacts, TopicPlan
from muster.events.log.kafka.client.versions import READING, WRITING, check_versions
from muster.events.log.kafka.marks import Origin, origin_of
from muster.events.log.kafka.names import PROBE_SUFFIX
from muster.events.log.kafka.origin import Contents, check_origin, notes_of, refuse_foreign
from muster.events.log.kafka.producer import WriterConfig, claim
from muster.events.log.kafka.topic import check_topic, cleanup_policy, create_topic, created_topic_facts, topic_facts
from muster.events.records import SIGNS_OF_LIFE_FROM_LEVEL, Record


class Opened(msgspec.Struct, frozen=True, kw_only=True):
    """The result of an opening. `home`: the cluster whose owners' records are read.

    `guarantees`: None if it was opened for reading. `is_new`: the topic had no records.
    """

    facts: TopicFacts
    origin: Origin
    home: str | None = None
    guarantees: Guarantees | None = None
    is_new: bool = False
    signs_warning: str | None = None


class Opening:
    """See the module. Remembers across attempts what it did, in case the first ones fail."""

    def __init__(
        self,
        link: KafkaLink,
        plan: TopicPlan,
        *,
        new_format_level: int,
        timeout_ms: int,
        wall_ms: Callable[[], int],
    ) -> None:
        self._link = link
        self._plan = plan
        self._probe = plan.name + PROBE_SUFFIX
        self._new_format_level = new_format_level
        self._timeout_ms = timeout_ms
        self._wall_ms = wall_ms
        self.created: list[str] = []
        """The topics that were missing, and were created."""
        self.history_is_gone = False
        """True if a log of this name existed before, and its topic had to be recreated."""

    async def for_reading(self) -> Opened:
        """Open an existing topic, without writing. Raises LogMissing, LogMismatch, LogUnavailable."""
        await self._check_versions(READING)
        facts = await self._facts_of(self._plan.name)
        if facts is None:
            raise LogMissing(f"topic {self._plan.name} does not exist, and a log opened for reading creates none")
        contents = await self._look_into(facts)
        if contents is Contents.NOTHING:
            await self._check_was_opened()
        found = await notes_of(
            self._link, self._plan.name, facts.partitions, facts.cluster_id, timeout_ms=self._timeout_ms
        )
        format_level = self._new_format_level if contents is Contents.NOTHING else found.format_level
        elsewhere = found.origin.cluster_id if found.origin is not None else None
        return Opened(facts=facts, origin=origin_of(facts.cluster_id, format_level), home=elsewhere or facts.cluster_id)

    async def for_writing(self) -> Opened:
        """Open the topic, and create it if it is missing. Raises LogMismatch, LogTooNew, LogUnavailable."""
        link, plan = self._link, self._plan
        await self._check_versions(WRITING)
        await self._refuse_muster()
        found = await self._facts_of(plan.name)
        contents = Contents.NOTHING if found is None else await self._look_into(found)
        if found is None and await self._is_lost():
            self.history_is_gone = True
        facts = found or await self._created(plan.name, plan.configs(), partitions=plan.partitions)
        is_ours = contents is Contents.OURS
        guarantees = await check_topic(link, plan, facts, is_ours=is_ours, timeout_ms=self._timeout_ms)
        await self._follow(plan.name)
        newest = origin_of(facts.cluster_id)
        notes = await check_origin(link, plan.name, facts.partitions, newest, timeout_ms=self._timeout_ms)
        is_new = contents is Contents.NOTHING
        opened = Opened(
            facts=facts,
            origin=origin_of(facts.cluster_id, self._new_format_level if is_new else notes.format_level),
            home=facts.cluster_id,
            guarantees=guarantees,
            is_new=is_new,
        )
        if await self._facts_of(self._probe) is None:
            await self._created(self._probe, signs.PROBE_CONFIGS, partitions=1)
        await self._follow(plan.name, self._probe)
        await self._prove_fencing(self.writer_config(opened, self._probe, 0))
        signs_warning = None
        if opened.origin.format_level >= SIGNS_OF_LIFE_FROM_LEVEL:
            policy = await cleanup_policy(link, self._probe, timeout_ms=self._timeout_ms)
            signs_warning = signs.warning_of(self._probe, policy, link.asked_at)
        await self._follow(plan.name)
        return msgspec.structs.replace(opened, signs_warning=signs_warning)

    def writer_config(self, opened: Opened, topic: str, partition: int) -> WriterConfig:
        """Return how a partition of the event topic, or of the probe's, is written. Raises LogMismatch."""
        if opened.guarantees is None:
            raise LogMismatch(f"topic {self._plan.name} is not open for writing: nothing can be claimed")
        is_the_logs = topic == self._plan.name
        return WriterConfig(
            topic=topic,
            partition=partition,
            limit_bytes=opened.guarantees.batch_bytes_max,
            delivery_timeout_ms=self._timeout_ms,
            origin=opened.origin.encode(),
            partitions=opened.facts.partitions if is_the_logs else None,
            is_new=is_the_logs and opened.is_new,
            wall_ms=self._wall_ms,
        )

    # ---- steps ------------------------------------------------------------------------------------------------------

    async def _facts_of(self, topic: str) -> TopicFacts | None:
        return await topic_facts(self._link, topic, timeout_ms=self._timeout_ms)

    async def _follow(self, *topics: str) -> None:
        await retry(lambda: self._link.follow(topics), timeout_ms=self._timeout_ms)

    async def _check_versions(self, needed: Sequence[SupportedApi]) -> None:
        link = self._link
        for node_id in link.brokers():
            offered = await link.ask_while_named(node_id, partial(link.versions, node_id), timeout_ms=self._timeout_ms)
            if offered is not None:
                check_versions(link.broker_said(node_id), offered, needed)

    async def _refuse_muster(self) -> None:
        link = self._link
        if await retry(partial(is_muster, link), timeout_ms=self._timeout_ms):
            brokers = "the brokers of the Kafka cluster behind it"
            raise LogMismatch(f"{link.asked_at} is a Muster, not a broker; name {brokers}")

    async def _look_into(self, facts: TopicFacts) -> Contents:
        """Check the contents of an existing topic. Raises LogMismatch if they are not Muster's."""
        await self._follow(name := self._plan.name)
        return await refuse_foreign(
            self._link, name, facts.partitions, was_opened=self._was_opened, timeout_ms=self._timeout_ms
        )

    async def _was_opened(self) -> bool:
        """Return whether a log of this name was opened before: then the probe's topic exists."""
        try:
            return await self._facts_of(self._probe) is not None
        except LogMismatch:  # readers do not need access to it
            return False

    async def _check_was_opened(self) -> None:
        """Check that an empty topic is a log: an owner has opened it, and created the probe's topic.

        A reader without access to that topic checks the cleanup policy, which may not be known either. Raises
        LogMissing.
        """
        name = self._plan.name
        try:
            was_opened = await self._facts_of(self._probe) is not None
            why = f"no topic {self._probe}, which Muster creates"
        except LogMismatch:
            policy = await cleanup_policy(self._link, name, timeout_ms=self._timeout_ms)
            was_opened = policy is None or "compact" in policy
            why = f"cleanup.policy={policy}, and an event log is compacted"
        if not was_opened:
            raise LogMissing(
                f"topic {name} is empty, and no Muster has opened it as its event log: there is {why}. If it was"
                " created for one, start that; else give --log the name of an event log"
            )

    async def _is_lost(self) -> bool:
        """Return whether the missing topic existed before; checked twice, as another process may be creating it now."""
        return await self._facts_of(self._probe) is not None and await self._facts_of(self._plan.name) is None

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
