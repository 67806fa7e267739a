"""The configs on which the guarantees of the Kafka log rest: those that are set, refused and warned about.

The rules apply to the configs of the event topic and of the brokers. Pure: no connection.

A setting that contradicts ours, or that could lose an acknowledged append, is refused: the message names all such
settings at once, each with both values and how to fix it. A setting that weakens the guarantee but may be intended
causes a warning.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from muster.events.log.base import LogMismatch

MIB = 1024 * 1024
BATCH_BYTES_MAX = 64 * MIB
AUDIT_WINDOW_MS = 7 * 24 * 60 * 60 * 1000

_REQUEST_OVERHEAD_BYTES = 4096
"""The size of a Produce request without its batch, with room to spare."""

_VALUE_CHARS_MAX = 80

_EXPIRATIONS = ("producer.id.expiration.ms", "transactional.id.expiration.ms")
_EXPIRATION_MS_MIN = 60_000
_CLAIMS_PER_EXPIRATION = 4

_DELETIONS_KEPT = ("min.compaction.lag.ms", "delete.retention.ms")
"""No record is compacted away before the first, and no tombstone before the second; so the longer one counts."""

BROKER_CONFIGS = (*_EXPIRATIONS, "socket.request.max.bytes")
"""The configs that are read from each broker."""

CLOCK_CONFIGS = {"message.timestamp.type": "LogAppendTime"}
"""Brokers stamp the records: with CreateTime they would refuse the records of an owner whose clock is an hour ahead."""

OWN_CLOCK_CONFIGS = {"message.timestamp.type": "CreateTime"}
"""Records keep their own time, as a simulation needs."""

Configs = Mapping[str, str]
"""Names and values as Kafka returns them. Empty for a broker whose configs we may not read."""


class TopicPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The event topic as our own settings require it; None: accept the existing value, or use the default for a new
    topic.
    """

    name: str
    partitions: int | None
    replication: int | None
    audit_window_ms: int
    batch_bytes_max: int
    keeps_times: bool = False
    """True if records have the times of our clock, which may differ from the brokers'."""

    def configs(self) -> dict[str, str]:
        """Return the configs to create the topic with; the broker's defaults are right for all others."""
        return {
            "cleanup.policy": "compact",
            "min.compaction.lag.ms": str(self.audit_window_ms),
            "max.message.bytes": str(self.batch_bytes_max),
            "compression.type": "producer",
            "unclean.leader.election.enable": "false",
            **(OWN_CLOCK_CONFIGS if self.keeps_times else CLOCK_CONFIGS),
        }


class TopicFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The topic's current state; the replication is that of the partition with the fewest replicas."""

    partitions: int
    replication: int
    cluster_id: str | None = None
    topic_id: str | None = None
    """The topic's id, which changes if the topic is recreated; None if the brokers have no topic ids."""


class Guarantees(msgspec.Struct, frozen=True, kw_only=True):
    """The guarantees of the configs of the topic and the brokers."""

    batch_bytes_max: int
    claim_renewal_ms: int | None
    """The interval at which an owner must renew its claim, or the brokers forget its fence; None: they do not report
    it.
    """
    warnings: tuple[str, ...]
    deletions_kept_ms: int | None = None
    """How long a deletion is kept at least since it was appended; None: the brokers do not report it."""


def guarantees(
    plan: TopicPlan,
    facts: TopicFacts,
    topic: Configs,
    brokers: Sequence[Configs],
    *,
    bootstrap: str,
    is_ours: bool,
    who: str,
) -> Guarantees:
    """Derive the guarantees. Raises LogMismatch for configs that contradict `plan` or break them.

    `is_ours`: the topic holds events, so the fix is to change its settings. An empty one may have been created for
    them, or for other records: then the fix is another topic. `who`: our principal at the brokers.
    """
    if refusals := _refusals(plan, facts, topic, brokers, bootstrap=bootstrap, is_ours=is_ours):
        raise LogMismatch("; ".join(refusals))
    expirations = _known(brokers, _EXPIRATIONS)
    return Guarantees(
        batch_bytes_max=_batch_bytes_max(plan, topic, brokers),
        claim_renewal_ms=min(expirations) // _CLAIMS_PER_EXPIRATION if expirations else None,
        warnings=tuple(_warnings(plan, facts, topic, brokers, who=who)),
        deletions_kept_ms=max(_known([topic], _DELETIONS_KEPT), default=None),
    )


def flaws(
    plan: TopicPlan, facts: TopicFacts, topic: Configs, brokers: Sequence[Configs], *, bootstrap: str, who: str
) -> list[str]:
    """Return all that is wrong with the configs of a topic in use: what a start would refuse, or warn about."""
    refusals = _refusals(plan, facts, topic, brokers, bootstrap=bootstrap, is_ours=True)
    return [*refusals, *_warnings(plan, facts, topic, brokers, who=who)]


def deleted_beginning(topic: str, begins: Mapping[int, int]) -> str | None:
    """Return the flaw of a topic whose partitions begin after offset 0; None if nothing is missing.

    `begins`: the first offset of each partition. Compaction does not move the beginning of a partition, only deletion
    does.
    """
    cut = {partition: begin for partition, begin in sorted(begins.items()) if begin > 0}
    if not cut:
        return None
    named = ", ".join(f"partition {partition} up to offset {begin}" for partition, begin in list(cut.items())[:3])
    more = f" and {len(cut) - 3} more partitions" if len(cut) > 3 else ""
    return (
        f"the beginning of topic {topic} was deleted ({named}{more}): its cleanup.policy has or had `delete`, or"
        " records were deleted by hand. Their events are lost, and groups may seem to have started later than they did"
    )


def _refusals(
    plan: TopicPlan, facts: TopicFacts, topic: Configs, brokers: Sequence[Configs], *, bootstrap: str, is_ours: bool
) -> list[str]:
    return [
        *_partition_refusals(plan, facts),
        *_replica_refusals(plan, facts, topic, bootstrap),
        *_topic_refusals(plan, topic, bootstrap, is_ours=is_ours),
        *_expiration_refusals(brokers),
    ]


def _partition_refusals(plan: TopicPlan, facts: TopicFacts) -> Iterator[str]:
    if plan.partitions not in {None, facts.partitions}:
        yield (
            f"topic {plan.name} has {facts.partitions} partitions, but {plan.partitions} are expected"
            " (--log-partitions,"
            " or the event topic's number): a group's partition depends on this number, so it must never change. If"
            " the topic"
            f" was created with {facts.partitions}, start with --log-partitions {facts.partitions}; if partitions were"
            " added since, restore it, or start with another --log"
        )


def _replica_refusals(plan: TopicPlan, facts: TopicFacts, topic: Configs, bootstrap: str) -> Iterator[str]:
    in_sync_min = _number(topic, "min.insync.replicas", 1)
    if in_sync_min > facts.replication:
        yield (
            f"topic {plan.name} has {facts.replication} replicas and min.insync.replicas={in_sync_min}, so nothing can"
            " ever be appended: give it more replicas, or run"
            f" `{alter_command(plan.name, bootstrap, {'min.insync.replicas': str(max(1, facts.replication - 1))})}`"
        )


def _topic_refusals(plan: TopicPlan, topic: Configs, bootstrap: str, *, is_ours: bool) -> Iterator[str]:
    wanted = plan.configs()
    ways_out = {
        "cleanup.policy": "or start with another topic",
        "min.compaction.lag.ms": "or start with the audit window that the topic has",
        "unclean.leader.election.enable": "since such an election loses events that were acknowledged",
    }
    if plan.keeps_times:
        ways_out["message.timestamp.type"] = "or start with another topic"
    wrong = {setting: wanted[setting] for setting in ways_out if topic.get(setting, wanted[setting]) != wanted[setting]}
    descriptions = {
        setting: f"topic {plan.name} has {setting}={topic[setting]}, the settings say {value}"
        for setting, value in wrong.items()
    }
    if is_ours:
        for setting, value in wrong.items():
            command = alter_command(plan.name, bootstrap, {setting: value})
            yield f"{descriptions[setting]}: run `{command}`, {ways_out[setting]}"
    elif wrong:
        yield (
            f"{'; '.join(descriptions.values())}; and it holds no events: if it was created for them, run"
            f" `{alter_command(plan.name, bootstrap, wanted)}`, else give --log another name (a topic that does"
            " not exist yet is created with the right settings)"
        )


def alter_command(topic: str, bootstrap: str, configs: Configs) -> str:
    """Return the command with which an operator sets the topic's configs."""
    return (
        f"kafka-configs.sh --bootstrap-server {bootstrap} --alter --entity-type topics --entity-name {topic}"
        f" --add-config {','.join(f'{setting}={value}' for setting, value in configs.items())}"
    )


def _expiration_refusals(brokers: Sequence[Configs]) -> Iterator[str]:
    for setting in _EXPIRATIONS:
        known = _known(brokers, [setting])
        if known and min(known) < _EXPIRATION_MS_MIN:
            yield (
                f"a broker has {setting}={min(known)}, the event log needs {_EXPIRATION_MS_MIN} or more, or it"
                " forgets the fence of an idle owner: raise it in server.properties (its default is a day or more)"
            )


def _batch_bytes_max(plan: TopicPlan, topic: Configs, brokers: Sequence[Configs]) -> int:
    of_batches = _number(topic, "max.message.bytes", plan.batch_bytes_max)
    of_requests = [size - _REQUEST_OVERHEAD_BYTES for size in _known(brokers, ["socket.request.max.bytes"])]
    return min([of_batches, *of_requests])


def _warnings(
    plan: TopicPlan, facts: TopicFacts, topic: Configs, brokers: Sequence[Configs], *, who: str
) -> Iterator[str]:
    limit = _batch_bytes_max(plan, topic, brokers)
    if limit < plan.batch_bytes_max:
        yield (
            f"topic {plan.name} takes batches of {limit} bytes, the settings say {plan.batch_bytes_max}: larger"
            " transitions are refused (max.message.bytes of the topic, socket.request.max.bytes of the brokers)"
        )
    if facts.replication > 1 and topic.get("min.insync.replicas") == "1":
        yield (
            f"topic {plan.name} has {facts.replication} replicas but min.insync.replicas=1: events that only one"
            " broker has are acknowledged, and lost with it; 2 or more is safe"
        )
    for unread, resource in ((not topic, f"TOPIC {plan.name}"), (not all(brokers), "CLUSTER")):
        if unread:
            yield (f"{who} lacks the ACL Allow DESCRIBE_CONFIGS on {resource}, so the configs there were not checked")


def _known(brokers: Sequence[Configs], settings: Iterable[str]) -> list[int]:
    return [_number(broker, setting, 0) for setting in settings for broker in brokers if setting in broker]


def _number(configs: Configs, setting: str, default: int) -> int:
    value = configs.get(setting)
    if value is None:
        return default
    try:
        return int(value)
    except ValueError:
        raise LogMismatch(f"the brokers say {setting}={value[:_VALUE_CHARS_MAX]!r}, which is not a number") from None
