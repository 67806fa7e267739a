"""Which settings of a topic and its brokers an event log may rest upon."""

import msgspec
import pytest

from muster.events.log.base import LogMismatch
from muster.events.log.kafka.client.settings import (
    AUDIT_WINDOW_MS,
    Configs,
    Guarantees,
    TopicFacts,
    TopicPlan,
    deleted_beginning,
    flaws,
    guarantees,
)

PLAN = TopicPlan(
    name="events", partitions=None, replication=None, audit_window_ms=1000, batch_bytes_max=64 * 1024 * 1024
)
BROKER = {
    "producer.id.expiration.ms": "86400000",
    "transactional.id.expiration.ms": "604800000",
    "socket.request.max.bytes": "104857600",
}


def promised(
    topic: Configs | None = None,
    *brokers: Configs,
    plan: TopicPlan = PLAN,
    replication: int = 3,
    is_ours: bool = True,
) -> Guarantees:
    """The guarantees of a topic made by the plan, with these `topic` configs instead."""
    configs = {"min.insync.replicas": "2", **plan.configs(), **(topic or {})}
    facts = TopicFacts(partitions=8, replication=replication)
    return guarantees(plan, facts, configs, brokers or [BROKER], bootstrap="kafka:9092", is_ours=is_ours, who="us")


def test_the_topic_that_we_would_make_is_right() -> None:
    """It holds batches of the size planned, and wants a claim in a quarter of the shorter expiration."""
    assert promised() == Guarantees(
        batch_bytes_max=64 * 1024 * 1024, claim_renewal_ms=21_600_000, warnings=(), deletions_kept_ms=1000
    )


def test_the_way_out_of_a_contradiction_is_a_command() -> None:
    """It can be pasted."""
    with pytest.raises(LogMismatch) as mismatch:
        promised({"min.compaction.lag.ms": "0"})
    assert str(mismatch.value) == (
        "topic events has min.compaction.lag.ms=0, the settings say 1000: run `kafka-configs.sh --bootstrap-server"
        " kafka:9092 --alter --entity-type topics --entity-name events --add-config min.compaction.lag.ms=1000`, or"
        " start with the audit window that the topic has"
    )


def test_both_remedies_are_shown_for_an_empty_topic() -> None:
    """If it was created for events, one command fixes it; else it is for another application's records."""
    with pytest.raises(LogMismatch) as mismatch:
        promised({"cleanup.policy": "delete"}, is_ours=False)
    assert str(mismatch.value) == (
        "topic events has cleanup.policy=delete, the settings say compact; and it holds no events: if it was"
        " created for them, run `kafka-configs.sh --bootstrap-server kafka:9092 --alter --entity-type topics"
        " --entity-name"
        " events --add-config cleanup.policy=compact,min.compaction.lag.ms=1000,max.message.bytes=67108864,"
        "compression.type=producer,unclean.leader.election.enable=false,message.timestamp.type=LogAppendTime`, else"
        " give --log another name (a topic that does not exist yet is created with the right settings)"
    )


@pytest.mark.parametrize("setting", ["producer.id.expiration.ms", "transactional.id.expiration.ms"])
def test_a_broker_that_forgets_the_fence_within_a_minute_is_refused(setting: str) -> None:
    """One of several is enough: it may become the leader."""
    with pytest.raises(LogMismatch, match=f"{setting}=59999, the event log needs 60000"):
        promised(None, BROKER, {**BROKER, setting: "59999"})
    assert promised(None, BROKER, {**BROKER, setting: "60000"}).claim_renewal_ms == 15_000


def test_a_broker_that_takes_smaller_requests_limits_the_batch() -> None:
    """It would cut the connection without an answer; so a batch stays below, with room for the request around it."""
    guarantee = promised(None, BROKER, {**BROKER, "socket.request.max.bytes": "1000000"})

    assert 990_000 < guarantee.batch_bytes_max < 1_000_000
    assert "socket.request.max.bytes" in guarantee.warnings[0]


def test_a_single_in_sync_replica_of_several_is_warned_of() -> None:
    """It is a choice that some make; with one replica there is nothing to choose."""
    (warning,) = promised({"min.insync.replicas": "1"}).warnings

    assert "min.insync.replicas=1" in warning
    assert promised({"min.insync.replicas": "1"}, replication=1).warnings == ()


def test_brokers_that_do_not_return_their_configs_cause_a_warning() -> None:
    """How often to claim is then not known."""
    guarantee = promised(None, {})

    assert guarantee.claim_renewal_ms is None
    assert "DESCRIBE_CONFIGS" in guarantee.warnings[0]


def test_a_topic_that_nothing_can_be_appended_to_is_refused() -> None:
    """More replicas must be in sync than there are: a broker refuses every append, for ever."""
    with pytest.raises(LogMismatch) as mismatch:
        promised({"min.insync.replicas": "3"}, replication=2)
    assert str(mismatch.value) == (
        "topic events has 2 replicas and min.insync.replicas=3, so nothing can ever be appended: give it more replicas,"
        " or run `kafka-configs.sh --bootstrap-server kafka:9092 --alter --entity-type topics --entity-name events"
        " --add-config min.insync.replicas=1`"
    )
    assert promised({"min.insync.replicas": "2"}, replication=2).warnings == ()


@pytest.mark.parametrize(("replicas", "advised"), [(1, "1"), (2, "1"), (3, "2"), (5, "4")])
def test_one_replica_fewer_than_there_are_is_advised(replicas: int, advised: str) -> None:
    """One may be down; of a single one none may."""
    with pytest.raises(LogMismatch, match=f"--add-config min.insync.replicas={advised}`$"):
        promised({"min.insync.replicas": str(replicas + 1)}, replication=replicas)


def test_a_single_in_sync_replica_of_two_is_warned_of() -> None:
    (warning,) = promised({"min.insync.replicas": "1"}, replication=2).warnings
    assert warning.startswith("topic events has 2 replicas but min.insync.replicas=1")


def test_configs_that_may_not_be_read_are_named_with_the_right() -> None:
    """Those of the topic, and of one of the brokers; the known configs of the others count."""
    facts = TopicFacts(partitions=8, replication=3)
    found = guarantees(PLAN, facts, {}, [BROKER, {}], bootstrap="kafka:9092", is_ours=True, who="us")
    assert found == Guarantees(
        batch_bytes_max=PLAN.batch_bytes_max,
        claim_renewal_ms=21_600_000,
        warnings=(
            "us lacks the ACL Allow DESCRIBE_CONFIGS on TOPIC events, so the configs there were not checked",
            "us lacks the ACL Allow DESCRIBE_CONFIGS on CLUSTER, so the configs there were not checked",
        ),
    )


def test_all_refused_settings_are_reported_at_once() -> None:
    """With a way out for each."""
    plan = msgspec.structs.replace(PLAN, partitions=3, keeps_times=True)
    expiring = {**BROKER, "producer.id.expiration.ms": "1"}
    with pytest.raises(LogMismatch) as mismatch:
        promised({"message.timestamp.type": "LogAppendTime"}, expiring, plan=plan)
    text = str(mismatch.value)
    assert text.startswith("topic events has 8 partitions, but 3 are expected")
    assert "; topic events has message.timestamp.type=LogAppendTime, the settings say CreateTime: run `" in text
    assert "`, or start with another topic; a broker has producer.id.expiration.ms=1, the event log needs" in text


def test_the_room_for_a_request_around_its_batch_is_4_kib() -> None:
    assert promised(None, {**BROKER, "socket.request.max.bytes": "1000000"}).batch_bytes_max == 1_000_000 - 4_096


def test_the_audit_window_is_a_week() -> None:
    """Unless configured: a topic keeps overwritten records for that time."""
    week_ms = 7 * 24 * 3_600_000
    assert week_ms == AUDIT_WINDOW_MS
    plan = msgspec.structs.replace(PLAN, audit_window_ms=week_ms)
    assert plan.configs()["min.compaction.lag.ms"] == "604800000"


# ---- while the topic is served --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changed", "replication", "said"),
    [
        ({"cleanup.policy": "compact,delete"}, 3, "cleanup.policy=compact,delete"),
        ({"min.compaction.lag.ms": "0"}, 3, "min.compaction.lag.ms=0"),
        ({"unclean.leader.election.enable": "true"}, 3, "unclean.leader.election.enable=true"),
        ({"min.insync.replicas": "3"}, 2, "so nothing can ever be appended"),
        ({"min.insync.replicas": "1"}, 3, "min.insync.replicas=1"),
        ({"max.message.bytes": "1000"}, 3, "takes batches of 1000 bytes"),
    ],
)
def test_settings_refused_or_warned_of_at_the_start_are_a_flaw_later(
    changed: Configs, replication: int, said: str
) -> None:
    """Each is reported; nothing is raised, since a serving process continues."""
    configs = {"min.insync.replicas": "2", **PLAN.configs(), **changed}
    facts = TopicFacts(partitions=8, replication=replication)
    (flaw,) = flaws(PLAN, facts, configs, [BROKER], bootstrap="kafka:9092", who="us")
    assert said in flaw


def test_brokers_that_forget_fences_are_all_reported() -> None:
    """Also what is wrong with each alone, and a partition that was added."""
    plan = msgspec.structs.replace(PLAN, partitions=8)
    facts = TopicFacts(partitions=9, replication=3)
    configs = {"min.insync.replicas": "2", **PLAN.configs()}
    broker = {**BROKER, "producer.id.expiration.ms": "1000"}
    found = flaws(plan, facts, configs, [broker], bootstrap="kafka:9092", who="us")
    assert ["has 9 partitions" in found[0], "producer.id.expiration.ms=1000" in found[1]] == [True, True]


def test_only_deletion_moves_the_beginning_of_a_partition() -> None:
    """Some are named."""
    assert deleted_beginning("events", {0: 0, 1: 0}) is None
    reported = deleted_beginning("events", {0: 5, 1: 0, 2: 9, 3: 1, 4: 2})
    assert reported is not None
    assert "(partition 0 up to offset 5, partition 2 up to offset 9, partition 3 up to offset 1 and 1 more" in reported


@pytest.mark.parametrize("setting", ["min.insync.replicas", "max.message.bytes", "delete.retention.ms"])
def test_an_invalid_number_is_named(setting: str) -> None:
    """However long it is."""
    with pytest.raises(LogMismatch, match=f"{setting}='x{{80}}', which is not a number"):
        promised({setting: "x" * 1000})
