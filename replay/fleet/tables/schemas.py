"""The tables: names, columns, and descriptions of rows and columns. `docs/fleet.md` is generated from this.

Times are UTC timestamps with microseconds, durations whole milliseconds in columns that end in `_ms`; the description
of a nullable column says what null means. Summing a column never counts anything twice, since each row is one thing.
"""

from typing import Final

import msgspec
import pyarrow as pa

from muster.replay.history.items import UNREADABLE_NAMED

RULES_VERSION: Final = 12
"""Raised whenever a rule or a column changes, so that no table mixes rows of different rules."""

_NOTES: Final = (
    f"What is missing of its history; of over {UNREADABLE_NAMED} records in a row that cannot be read the first"
    f" {UNREADABLE_NAMED}, and how many follow."
)

TEXT: Final = pa.string()
AT: Final = pa.timestamp("us", tz="UTC")
MS: Final = pa.int64()
NUMBER: Final = pa.int64()
COUNT: Final = pa.int32()
FLAG: Final = pa.bool_()
TEXTS: Final = pa.list_(pa.field("element", pa.string()))
DAY: Final = pa.date32()


class Column(msgspec.Struct, frozen=True):
    """A column: its name, Arrow type and description."""

    name: str
    type: pa.DataType
    about: str
    can_be_null: bool = False


class FleetTable(msgspec.Struct, frozen=True):
    """A table. `about`: what a row is. `derived`: computed from the rows of other tables, one file per day."""

    name: str
    about: str
    columns: tuple[Column, ...]
    derived: bool = False

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema of the table's files."""
        return pa.schema([pa.field(each.name, each.type, nullable=each.can_be_null) for each in self.columns])

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(each.name for each in self.columns)


GROUP: Final = Column("group_id", TEXT, "The group.")
LIFE: Final = Column(
    "incarnation", NUMBER, "The life of the group: a group that was deleted and made anew has another."
)
LOG_PARTITION: Final = Column("log_partition", COUNT, "The partition of the event log that the group lives in.")
PARTITION_MS: Final = Column(
    "partition_ms", MS, "Partitions times the time in which they had no consumer; null: not known.", can_be_null=True
)
REBALANCING_MS: Final = Column(
    "rebalancing_ms",
    MS,
    "The time in which the group was not Stable; null: not known of each rebalance.",
    can_be_null=True,
)

REBALANCES: Final = FleetTable(
    "rebalances",
    "A rebalance of a group, with the incident that it belongs to.",
    (
        GROUP,
        LIFE,
        LOG_PARTITION,
        Column("first_seq", NUMBER, "The group's running number of its first event."),
        Column("last_seq", NUMBER, "... and of its last one."),
        Column("day", DAY, "The UTC day on which it started."),
        Column("started_at", AT, "When the group left its state."),
        Column("ended_at", AT, "When it ended; null: it has not, or the log does not tell.", can_be_null=True),
        Column("duration_ms", MS, "How long it took; null: not known.", can_be_null=True),
        Column("outcome", TEXT, "stable, emptied, superseded, running, or unknown (its end is not in the log)."),
        Column("from_generation", COUNT, "The generation before."),
        Column("to_generation", COUNT, "The generation that came of it; null: none (yet).", can_be_null=True),
        Column("initial", FLAG, "Whether the group was Empty."),
        Column("trigger", TEXT, "What started it: a cause, in the words of the events."),
        Column("trigger_seq", NUMBER, "The event that did."),
        Column("trigger_member_id", TEXT, "The member that started it; null: none, or a request.", can_be_null=True),
        Column("trigger_group_instance_id", TEXT, "Its instance id; null: a dynamic member.", can_be_null=True),
        Column("trigger_client_id", TEXT, "Its client id.", can_be_null=True),
        Column("trigger_client_host", TEXT, "Its host, as Kafka prints it.", can_be_null=True),
        Column("trigger_session_timeout_ms", MS, "Its session timeout; null: not recorded.", can_be_null=True),
        Column(
            "trigger_silence_ms",
            MS,
            "From its last sign of life to the decision; null: not recorded.",
            can_be_null=True,
        ),
        Column("client_reason", TEXT, "The client's own words (KIP-800); null: it gave none.", can_be_null=True),
        Column(
            "folded",
            TEXTS,
            "What would have started one while it ran, in order: causes; of over 2,000 the first and the last 1,000.",
        ),
        Column("incident", TEXT, "Its primary incident: `incidents.incident` of the same group."),
        Column("incident_kind", TEXT, "The kind of that incident."),
        Column("grade", TEXT, "How well that is known: recorded, inferred or unknown."),
        Column("join_ms", MS, "How long the join phase took; null: not known, or not over.", can_be_null=True),
        Column("join_timeout_ms", MS, "How long it might have taken."),
        Column("join_timed_out", FLAG, "Whether it did."),
        Column(
            "sync_ms",
            MS,
            "How long the sync phase took; null: there was none, not known, or not over.",
            can_be_null=True,
        ),
        Column("waited_for", TEXTS, "Members that the join phase waited for in vain, by name."),
        Column("last_to_join", TEXT, "The member that joined last; null: nobody did.", can_be_null=True),
        Column("last_join_ms", MS, "... so long after the start; null: nobody did.", can_be_null=True),
        Column(
            "leader", TEXT, "The leader of the new generation, by name; null: none, or not known.", can_be_null=True
        ),
        Column("protocol_type", TEXT, "`consumer`, `connect`, ...; null: not known.", can_be_null=True),
        Column("protocol_name", TEXT, "The assignor; null: no generation came of it.", can_be_null=True),
        Column("members_before", COUNT, "Members at the start."),
        Column("members_after", COUNT, "Members at the end."),
        Column("members_lost", TEXTS, "Members that were there at the start and not at the end, by name."),
        Column("members_gained", TEXTS, "Members that were there at the end and not at the start, by name."),
        Column(
            "partitions_moved",
            COUNT,
            "Partitions that went from one member to another; null: not known.",
            can_be_null=True,
        ),
        Column("partitions_gained", COUNT, "Partitions that nobody had had; null: not known.", can_be_null=True),
        Column("partitions_lost", COUNT, "Partitions that nobody has now; null: not known.", can_be_null=True),
        Column(
            "partitions_stayed", COUNT, "Partitions that stayed where they were; null: not known.", can_be_null=True
        ),
        PARTITION_MS,
        Column("avoided", COUNT, "What would have been rebalances since the one before, and was spared."),
        Column("notes", TEXTS, _NOTES),
    ),
)

INCIDENTS: Final = FleetTable(
    "incidents",
    "An incident of a group: what happened, who is to blame, and what it cost (docs/incidents.md).",
    (
        GROUP,
        Column("incident", TEXT, "Its id, unique in the group."),
        LOG_PARTITION,
        Column("day", DAY, "The UTC day on which it started."),
        Column("started_at", AT, "When the group left its state, or when it happened."),
        Column("ended_at", AT, "When its last rebalance ended; null: it has not.", can_be_null=True),
        Column("kind", TEXT, "One of the kinds of docs/incidents.md."),
        Column("grade", TEXT, "How well it is known: recorded, inferred or unknown."),
        Column("headline", TEXT, "In a sentence."),
        Column("parent", TEXT, "The incident within which it happened; null: none.", can_be_null=True),
        Column(
            "culprits",
            TEXTS,
            "Who is to blame: members by name, other clients by client id; empty: nobody.",
        ),
        Column("client_ids", TEXTS, "Their client ids."),
        Column("client_hosts", TEXTS, "Their hosts, as Kafka prints them."),
        Column("rebalances", COUNT, "Rebalances that are its own."),
        REBALANCING_MS,
        PARTITION_MS,
        Column(
            "silent_partition_ms",
            MS,
            "Of that outside of rebalances, while their member was silent; null: since when is not known.",
            can_be_null=True,
        ),
        Column("empty_partition_ms", MS, "Of that outside of rebalances, while the group was empty."),
        Column("known_partition_ms", MS, "The known part of partition_ms: at least that much, where it is null."),
        Column(
            "partitions_moved",
            COUNT,
            "Partitions that went from one member to another; null: not known.",
            can_be_null=True,
        ),
        Column("partitions_moved_back", COUNT, "Those moves that came to nothing; null: not known.", can_be_null=True),
        Column(
            "unassigned_partition_ms",
            MS,
            "Of that outside of rebalances, while nobody was assigned their topic; null: not known.",
            can_be_null=True,
        ),
        Column("restarts_absorbed", COUNT, "Static members that came back to their places without a rebalance."),
        Column("notes", TEXTS, _NOTES),
    ),
)

MEMBERSHIPS: Final = FleetTable(
    "memberships",
    "A stay: a member of a group from its join to its end, under one member id.",
    (
        GROUP,
        LIFE,
        LOG_PARTITION,
        Column("member_id", TEXT, "The member id."),
        Column("group_instance_id", TEXT, "The instance id; null: a dynamic member.", can_be_null=True),
        Column("client_id", TEXT, "The client id."),
        Column("client_host", TEXT, "The host, as Kafka prints it."),
        Column("principal", TEXT, "Who it authenticated as."),
        Column("session_timeout_ms", MS, "Its session timeout."),
        Column("rebalance_timeout_ms", MS, "Its rebalance timeout."),
        Column("protocols", TEXTS, "Its assignors, in its order."),
        Column("role", TEXT, "Active, Learner, Standby or Called, as it was last."),
        Column("day", DAY, "The UTC day on which it joined."),
        Column("joined_at", AT, "When it joined."),
        Column("join_cause", TEXT, "Why; null: its join is not in the log.", can_be_null=True),
        Column("replaced_member_id", TEXT, "The member id that it took the place of; null: none.", can_be_null=True),
        Column("left_at", AT, "When it was gone; null: it is there, or the log does not tell.", can_be_null=True),
        Column("left_cause", TEXT, "Why; null: it is there, or the log does not tell.", can_be_null=True),
        Column(
            "how",
            TEXT,
            "left, removed, expired, not-rejoined, not-synced, planned, replaced (by another process with its instance"
            " id), or unknown (the log does not tell); null: it is there.",
            can_be_null=True,
        ),
        Column(
            "last_seen_at",
            AT,
            "Its last sign of life before that; null: it is there, or not recorded.",
            can_be_null=True,
        ),
        Column("stay_ms", MS, "How long it stayed; null: it is there, or the clock was put back.", can_be_null=True),
        Column("rejoins", COUNT, "How often it joined again under the same member id."),
    ),
)

COORDINATOR_DOWNTIME: Final = FleetTable(
    "coordinator_downtime",
    "A time in which no coordinator served a group that had members.",
    (
        GROUP,
        LOG_PARTITION,
        Column("day", DAY, "The UTC day on which it ended."),
        Column("since_at", AT, "The last that is known of the former owner."),
        Column("last_known", TEXT, "What that is: its orderly stop, its last sign of life, or its last event."),
        Column("until_at", AT, "When the group was served again."),
        Column("longest_ms", MS, "The longest that it can have been."),
        Column("shortest_ms", MS, "The shortest; null: it may have been a moment.", can_be_null=True),
        Column("paused", FLAG, "Whether the process itself stood still, and went on."),
        Column("owner_before", TEXT, "The former owner, HOST:PID; null: not known.", can_be_null=True),
        Column("owner", TEXT, "The owner after."),
        Column("members", COUNT, "The members of the group then."),
    ),
)

QUARANTINE: Final = FleetTable(
    "quarantine",
    "A record that cannot be read. Everything else of its group is told all the same.",
    (
        Column("topic", TEXT, "The log."),
        LOG_PARTITION,
        Column("offset", NUMBER, "Its offset."),
        Column("appended_at", AT, "When it was appended."),
        Column(
            "group_id",
            TEXT,
            "The group that its key names; null: the key cannot be read, or names none.",
            can_be_null=True,
        ),
        Column("kind", TEXT, "broken, unknown-type, undecodable-key, or coordinator (an event of the partition)."),
        Column("reason", TEXT, "Why it cannot be read."),
    ),
)

GROUP_DAY: Final = FleetTable(
    "group_day",
    "A day of a group on which anything began.",
    (
        GROUP,
        Column("day", DAY, "The UTC day. What began on it counts for it."),
        Column("rebalances", COUNT, "Rebalances."),
        Column("rebalancing_ms", MS, "The time in which the group was not Stable, as far as it is known."),
        Column("longest_ms", MS, "Its longest rebalance; null: none of which that is known.", can_be_null=True),
        Column(
            "partition_ms",
            MS,
            "Partitions times the time in which they had no consumer, in rebalances and outside, as far as is known.",
        ),
        Column(
            "partitions_moved",
            NUMBER,
            "Partitions that went from one member to another in its incidents, as far as it is known; also in the two"
            " rounds of a cooperative assignor, neither of which moves them alone.",
        ),
        Column("avoided", COUNT, "What would have been rebalances, and was spared."),
        Column("incidents", COUNT, "Incidents."),
        Column("unknown", COUNT, "Those of them whose cause is not known."),
        Column("worst_kind", TEXT, "The kind that cost most that day; null: no incident.", can_be_null=True),
        Column("joined", COUNT, "Stays that began."),
        Column("left", COUNT, "Stays that ended."),
        Column(
            "members_max", COUNT, "The most members at the end of a rebalance; null: there was none.", can_be_null=True
        ),
        Column("downtime_ms", MS, "The time without a coordinator, at the longest."),
    ),
    derived=True,
)

STORMS: Final = FleetTable(
    "storms",
    "Incidents of several groups that are one: the coordinator's doing, or one host's.",
    (
        Column("kind", TEXT, "coordinator or host."),
        Column("client_host", TEXT, "The host; null: the coordinator.", can_be_null=True),
        Column("day", DAY, "The UTC day on which it started."),
        Column("started_at", AT, "When its first incident started."),
        Column("ended_at", AT, "When the last one that has ended did; null: none has.", can_be_null=True),
        Column("groups", TEXTS, "The groups."),
        Column("incidents", COUNT, "Incidents."),
        Column("rebalances", COUNT, "Their rebalances."),
        Column("rebalancing_ms", MS, "The time in which the groups were not Stable, as far as it is known."),
        Column("partition_ms", MS, "Partitions times the time without a consumer, as far as it is known."),
    ),
    derived=True,
)

FLAPPING_MEMBERS: Final = FleetTable(
    "flapping_members",
    "A process that joined a group again and again in a day, and not for a deployment, a plan or an outage.",
    (
        GROUP,
        Column("day", DAY, "The UTC day."),
        Column("process", TEXT, "Its instance id; of a dynamic member client id and host."),
        Column("is_static", FLAG, "Whether it has an instance id."),
        Column("stays", COUNT, "How often it joined."),
        Column("at_once", COUNT, "How many at most were there at once: more than one cannot be told apart."),
        Column("first_at", AT, "Its first join."),
        Column("last_at", AT, "Its last join."),
        Column("shortest_ms", MS, "Its shortest stay; null: none has ended.", can_be_null=True),
        Column("triggered", COUNT, "Rebalances that it started."),
    ),
    derived=True,
)

TABLES: Final = {
    each.name: each
    for each in (
        REBALANCES, INCIDENTS, MEMBERSHIPS, COORDINATOR_DOWNTIME, QUARANTINE, GROUP_DAY, STORMS, FLAPPING_MEMBERS
    )
}  # fmt: skip
FOLDED: Final = tuple(each for each in TABLES.values() if not each.derived)
"""The tables that the fold over the events produces."""
