"""The tables: names, columns, and descriptions of rows and columns. `docs/fleet.md` is generated from this.

Times are UTC timestamps with microseconds, durations whole milliseconds in columns that end in `_ms`; the description
of a nullable column says what null means. No two rows count the same thing, so a column can be summed.
"""

from typing import Final

import msgspec
import pyarrow as pa

from muster.replay.history.items import UNREADABLE_NAMED

RULES_VERSION: Final = 12
"""Incremented whenever a rule or a column changes, so that no table mixes rows made by different rules."""

_NOTES: Final = (
    f"What is missing from its history. Of more than {UNREADABLE_NAMED} unreadable records in a row, the first "
    f"{UNREADABLE_NAMED}, and how many follow."
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
    "incarnation", NUMBER, "The incarnation of the group: a group that is deleted and created again gets another one."
)
LOG_PARTITION: Final = Column("log_partition", COUNT, "The event log partition of the group.")
REBALANCING_MS: Final = Column(
    "rebalancing_ms",
    MS,
    "How long the group was not Stable; null: unknown for at least one rebalance.",
    can_be_null=True,
)

REBALANCES: Final = FleetTable(
    "rebalances",
    "A rebalance of a group, with the incident that it belongs to.",
    (
        GROUP,
        LIFE,
        LOG_PARTITION,
        Column("first_seq", NUMBER, "The sequence number, within the group, of its first event."),
        Column("last_seq", NUMBER, "The sequence number of its last event."),
        Column("day", DAY, "The UTC day on which it started."),
        Column("started_at", AT, "When the group left its previous state."),
        Column(
            "ended_at", AT, "When it ended; null: it has not ended, or its end is not in the log.", can_be_null=True
        ),
        Column("duration_ms", MS, "How long it took; null: unknown.", can_be_null=True),
        Column("outcome", TEXT, "stable, emptied, superseded, running, or unknown (its end is not in the log)."),
        Column("from_generation", COUNT, "The previous generation."),
        Column("to_generation", COUNT, "The generation that it led to; null: none (yet).", can_be_null=True),
        Column("initial", FLAG, "True if the group was Empty before."),
        Column("trigger", TEXT, "What started it: a cause, as the events name it."),
        Column("trigger_seq", NUMBER, "The sequence number of the event that started it."),
        Column("trigger_member_id", TEXT, "The member that started it; null: none, or a request.", can_be_null=True),
        Column("trigger_group_instance_id", TEXT, "Its instance id; null: a dynamic member.", can_be_null=True),
        Column("trigger_client_id", TEXT, "Its client id.", can_be_null=True),
        Column("trigger_client_host", TEXT, "Its host, as Kafka prints it.", can_be_null=True),
        Column("trigger_session_timeout_ms", MS, "Its session timeout; null: not recorded.", can_be_null=True),
        Column(
            "trigger_silence_ms",
            MS,
            "From when it was last heard from to the decision; null: not recorded.",
            can_be_null=True,
        ),
        Column("client_reason", TEXT, "The client's reason (KIP-800); null: none given.", can_be_null=True),
        Column(
            "folded",
            TEXTS,
            "Causes that would have started a rebalance while it ran, in order; of more than 2,000, the first "
            "1,000 and the last 1,000.",
        ),
        Column("incident", TEXT, "Its primary incident: `incidents.incident` of the same group."),
        Column("incident_kind", TEXT, "The kind of that incident."),
        Column("grade", TEXT, "How certain the kind is: recorded, inferred or unknown."),
        Column("join_ms", MS, "How long the join phase took; null: unknown, or not over.", can_be_null=True),
        Column("join_timeout_ms", MS, "The time-out of the join phase."),
        Column("join_timed_out", FLAG, "True if the join phase timed out."),
        Column(
            "sync_ms",
            MS,
            "How long the sync phase took; null: there was none, unknown, or not over.",
            can_be_null=True,
        ),
        Column("waited_for", TEXTS, "Members for which the join phase waited in vain, by name."),
        Column("last_to_join", TEXT, "The member that joined last; null: none joined.", can_be_null=True),
        Column(
            "last_join_ms", MS, "How long after the start the last member joined; null: none joined.", can_be_null=True
        ),
        Column("leader", TEXT, "The leader of the new generation, by name; null: none, or unknown.", can_be_null=True),
        Column("protocol_type", TEXT, "`consumer`, `connect`, ...; null: unknown.", can_be_null=True),
        Column("protocol_name", TEXT, "The assignor; null: no new generation.", can_be_null=True),
        Column("members_before", COUNT, "Members at the start."),
        Column("members_after", COUNT, "Members at the end."),
        Column("members_lost", TEXTS, "Members at the start that were not members at the end, by name."),
        Column("members_gained", TEXTS, "Members at the end that were not members at the start, by name."),
        Column(
            "partitions_moved",
            COUNT,
            "Partitions that moved from one member to another; null: unknown.",
            can_be_null=True,
        ),
        Column("partitions_gained", COUNT, "Partitions that were unassigned before; null: unknown.", can_be_null=True),
        Column("partitions_lost", COUNT, "Partitions that are unassigned now; null: unknown.", can_be_null=True),
        Column(
            "partitions_stayed", COUNT, "Partitions that stayed with their members; null: unknown.", can_be_null=True
        ),
        Column(
            "partition_ms",
            MS,
            "Partitions times the time without a consumer during the rebalance; what was lost before it, while a member"
            " was silent or the group was empty, is in its incident; null: unknown.",
            can_be_null=True,
        ),
        Column("avoided", COUNT, "Rebalances that were avoided since the previous one."),
        Column("notes", TEXTS, _NOTES),
    ),
)

INCIDENTS: Final = FleetTable(
    "incidents",
    "An incident of a group: what happened, which members or clients caused it, and what it cost (docs/incidents.md).",
    (
        GROUP,
        Column("incident", TEXT, "Its id, unique in the group."),
        LOG_PARTITION,
        Column("day", DAY, "The UTC day on which it started."),
        Column("started_at", AT, "When the group left its previous state, or when it happened."),
        Column("ended_at", AT, "When its last rebalance ended; null: it has not ended.", can_be_null=True),
        Column("kind", TEXT, "One of the kinds of docs/incidents.md."),
        Column("grade", TEXT, "How certain the kind is: recorded, inferred or unknown."),
        Column("headline", TEXT, "A one-sentence summary."),
        Column("parent", TEXT, "The incident within which it happened; null: none.", can_be_null=True),
        Column(
            "culprits",
            TEXTS,
            "Members (by name) and other clients (by client id) that caused it; empty: none.",
        ),
        Column("client_ids", TEXTS, "The client ids of the culprits."),
        Column("client_hosts", TEXTS, "The hosts of the culprits, as Kafka prints them."),
        Column("rebalances", COUNT, "The number of its own rebalances."),
        REBALANCING_MS,
        Column("partition_ms", MS, "Partitions times the time without a consumer; null: unknown.", can_be_null=True),
        Column(
            "silent_partition_ms",
            MS,
            "The part of partition_ms outside of rebalances in which the partition's member was silent; null: "
            "its start is unknown.",
            can_be_null=True,
        ),
        Column(
            "empty_partition_ms", MS, "The part of partition_ms outside of rebalances in which the group was empty."
        ),
        Column("known_partition_ms", MS, "The known part of partition_ms: a lower bound where partition_ms is null."),
        Column(
            "partitions_moved",
            COUNT,
            "Partitions that moved from one member to another; null: unknown.",
            can_be_null=True,
        ),
        Column(
            "partitions_moved_back",
            COUNT,
            "The part of partitions_moved that was undone: the partition ended where it began; null: unknown.",
            can_be_null=True,
        ),
        Column(
            "unassigned_partition_ms",
            MS,
            "The part of partition_ms outside of rebalances in which no member was assigned the topic; null: unknown.",
            can_be_null=True,
        ),
        Column("restarts_absorbed", COUNT, "Static members that rejoined in their places without a rebalance."),
        Column("notes", TEXTS, _NOTES),
    ),
)

MEMBERSHIPS: Final = FleetTable(
    "memberships",
    "A stay: a member of a group from its join until it left, under one member id.",
    (
        GROUP,
        LIFE,
        LOG_PARTITION,
        Column("member_id", TEXT, "The member id."),
        Column("group_instance_id", TEXT, "The instance id; null: a dynamic member.", can_be_null=True),
        Column("client_id", TEXT, "The client id."),
        Column("client_host", TEXT, "The host, as Kafka prints it."),
        Column("principal", TEXT, "The principal that it authenticated as."),
        Column("session_timeout_ms", MS, "Its session timeout."),
        Column("rebalance_timeout_ms", MS, "Its rebalance timeout."),
        Column("protocols", TEXTS, "Its assignors, in its order of preference."),
        Column("role", TEXT, "Its last role: Active, Learner, Standby or Called."),
        Column("day", DAY, "The UTC day on which it joined."),
        Column("joined_at", AT, "When it joined."),
        Column("join_cause", TEXT, "Why it joined; null: its join is not in the log.", can_be_null=True),
        Column("replaced_member_id", TEXT, "The member id that it replaced; null: none.", can_be_null=True),
        Column(
            "left_at", AT, "When it left; null: it is still a member, or its end is not in the log.", can_be_null=True
        ),
        Column(
            "left_cause",
            TEXT,
            "Why it left; null: it is still a member, or its end is not in the log.",
            can_be_null=True,
        ),
        Column(
            "how",
            TEXT,
            "left, removed, expired, not-rejoined, not-synced, planned, replaced (by another process with its "
            "instance id), or unknown (its end is not in the log); null: it is still a member.",
            can_be_null=True,
        ),
        Column(
            "last_seen_at",
            AT,
            "When it was last heard from before it left; null: it is still a member, or not recorded.",
            can_be_null=True,
        ),
        Column(
            "stay_ms", MS, "How long it was a member; null: it still is, or the clock was set back.", can_be_null=True
        ),
        Column("rejoins", COUNT, "How often it rejoined under the same member id."),
    ),
)

COORDINATOR_DOWNTIME: Final = FleetTable(
    "coordinator_downtime",
    "A time during which no coordinator served a group that had members.",
    (
        GROUP,
        LOG_PARTITION,
        Column("day", DAY, "The UTC day on which it ended."),
        Column("since_at", AT, "When the previous owner was last known to serve the group."),
        Column(
            "last_known",
            TEXT,
            "How that is known: the owner's clean stop, when it was last heard from, or its last event.",
        ),
        Column("until_at", AT, "When the group was served again."),
        Column("longest_ms", MS, "The longest that the downtime can have been."),
        Column(
            "shortest_ms",
            MS,
            "The shortest that it can have been; null: it may have been an instant.",
            can_be_null=True,
        ),
        Column("paused", FLAG, "True if the process itself was paused, and then resumed."),
        Column("owner_before", TEXT, "The previous owner, HOST:PID; null: unknown.", can_be_null=True),
        Column("owner", TEXT, "The owner afterwards."),
        Column("members", COUNT, "The number of members of the group then."),
    ),
)

QUARANTINE: Final = FleetTable(
    "quarantine",
    "A record that cannot be read. Everything else about its group is in the other tables all the same.",
    (
        Column("topic", TEXT, "The topic of the event log."),
        LOG_PARTITION,
        Column("offset", NUMBER, "Its offset."),
        Column("appended_at", AT, "When it was appended."),
        Column(
            "group_id",
            TEXT,
            "The group that its key names; null: the key is unreadable, or names none.",
            can_be_null=True,
        ),
        Column("kind", TEXT, "broken, unknown-type, undecodable-key, or coordinator (an event of the partition)."),
        Column("reason", TEXT, "Why it cannot be read."),
    ),
)

GROUP_DAY: Final = FleetTable(
    "group_day",
    "A day of a group on which something began.",
    (
        GROUP,
        Column("day", DAY, "The UTC day; it counts whatever began on it."),
        Column("rebalances", COUNT, "The number of rebalances."),
        Column("rebalancing_ms", MS, "How long the group was not Stable, at least: unknown durations count 0."),
        Column("longest_ms", MS, "Its longest rebalance; null: none whose duration is known.", can_be_null=True),
        Column(
            "partition_ms",
            MS,
            "Partitions times the time without a consumer, in rebalances and outside, at least: unknown parts count 0.",
        ),
        Column(
            "partitions_moved",
            NUMBER,
            "Partitions that moved from one member to another in its incidents, as far as known; this includes "
            "moves that took the two rounds of a cooperative assignor, neither of which shows them alone.",
        ),
        Column("avoided", COUNT, "Rebalances that were avoided."),
        Column("incidents", COUNT, "The number of incidents."),
        Column("unknown", COUNT, "The incidents whose cause is unknown."),
        Column(
            "worst_kind", TEXT, "The kind of incident that cost most that day; null: no incident.", can_be_null=True
        ),
        Column("joined", COUNT, "The number of stays that began."),
        Column("left", COUNT, "The number of stays that ended."),
        Column(
            "members_max",
            COUNT,
            "The maximum number of members at the end of a rebalance; null: no rebalance.",
            can_be_null=True,
        ),
        Column("downtime_ms", MS, "The time without a coordinator, at most."),
    ),
    derived=True,
)

STORMS: Final = FleetTable(
    "storms",
    "Incidents of several groups with one cause: the coordinator, or one host.",
    (
        Column("kind", TEXT, "coordinator or host."),
        Column("client_host", TEXT, "The host that caused it; null: the coordinator did.", can_be_null=True),
        Column("day", DAY, "The UTC day on which it started."),
        Column("started_at", AT, "When its first incident started."),
        Column("ended_at", AT, "When the last of the ended incidents ended; null: none has.", can_be_null=True),
        Column("groups", TEXTS, "The group ids."),
        Column("incidents", COUNT, "The number of incidents."),
        Column("rebalances", COUNT, "The number of their rebalances."),
        Column("rebalancing_ms", MS, "How long the groups were not Stable, at least: unknown durations count 0."),
        Column("partition_ms", MS, "Partitions times the time without a consumer, at least: unknown parts count 0."),
    ),
    derived=True,
)

FLAPPING_MEMBERS: Final = FleetTable(
    "flapping_members",
    "A process that joined a group repeatedly within a day, not because of a deployment, a planned change or an"
    " outage.",
    (
        GROUP,
        Column("day", DAY, "The UTC day."),
        Column("process", TEXT, "Its instance id; for a dynamic member its client id and host."),
        Column("is_static", FLAG, "True if it has an instance id."),
        Column("stays", COUNT, "How often it joined."),
        Column(
            "at_once",
            COUNT,
            "The maximum number of simultaneous members with this name: if more than one, "
            "they cannot be distinguished.",
        ),
        Column("first_at", AT, "Its first join."),
        Column("last_at", AT, "Its last join."),
        Column("shortest_ms", MS, "Its shortest stay; null: none has ended.", can_be_null=True),
        Column("triggered", COUNT, "The number of rebalances that it started."),
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
