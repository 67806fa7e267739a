"""The causes of events: one closed enumeration, used by the rules, the log, the replay tool and the fleet.

A rebalance has one *trigger*, and any number of causes that were folded into it while it ran. Causes outside `TRIGGERS`
start nothing: they explain how a phase proceeded, what was refused, and what did not cause a rebalance. The texts are
for readers of a postmortem; `{member}` stands for the member that acted.
"""

from enum import StrEnum, unique


@unique
class Cause(StrEnum):
    """The cause of a transition. The values stay in logs forever: never change one."""

    # Triggers of a rebalance (catalogue RS2 to RS11); also folded into a running one.
    NEW_DYNAMIC_MEMBER = "new-dynamic-member"
    NEW_STATIC_MEMBER = "new-static-member"
    METADATA_CHANGED = "metadata-changed"
    LEADER_REJOINED = "leader-rejoined"
    STATIC_REPLACEMENT_CHANGED_PROTOCOL = "static-replacement-changed-protocol"
    STATIC_REPLACEMENT_DURING_SYNC = "static-replacement-during-sync"
    SESSION_EXPIRED = "session-expired"
    SYNC_TIMED_OUT = "sync-timed-out"
    MEMBER_LEFT = "member-left"
    MEMBER_REMOVED_BY_ADMIN = "member-removed-by-admin"
    PENDING_MEMBER_LEFT = "pending-member-left"
    ASSIGNMENT_NOT_STORED = "assignment-not-stored"
    OVER_CAPACITY = "over-capacity"
    # Triggers that Kafka does not have.
    REGISTRATION_COMPLETE = "registration-complete"
    REGISTRATION_TIMED_OUT = "registration-timed-out"
    EXPANSION_DELAY_ELAPSED = "expansion-delay-elapsed"
    LEARNERS_PROMOTED = "learners-promoted"
    LEARNER_TIMEOUT_ELAPSED = "learner-timeout-elapsed"
    RETIREMENT_COMPLETE = "retirement-complete"
    RETIREMENT_TIMED_OUT = "retirement-timed-out"
    RETIREMENT_WITHDRAWN = "retirement-withdrawn"
    GROUP_CONFIGURED = "group-configured"
    STANDBY_UNFIT = "standby-unfit"
    REBALANCE_REQUESTED = "rebalance-requested"
    GROUP_RELEASED = "group-released"
    PARTITIONS_UNASSIGNED = "partitions-unassigned"

    # Progress of a running rebalance.
    REJOINED = "rejoined"
    STATIC_REPLACEMENT_DURING_JOIN = "static-replacement-during-join"
    NOT_REJOINED = "not-rejoined"
    FIRST_JOIN_TIMED_OUT = "first-join-timed-out"
    ALL_JOINED = "all-joined"
    JOIN_PHASE_TIMED_OUT = "join-phase-timed-out"
    INITIAL_DELAY_ELAPSED = "initial-delay-elapsed"
    ASSIGNMENT_RECEIVED = "assignment-received"

    # Changes that caused no rebalance.
    STATIC_RESTART_ABSORBED = "static-restart-absorbed"
    LEARNER_ADMITTED = "learner-admitted"
    STANDBY_ADMITTED = "standby-admitted"
    STANDBY_CALLED = "standby-called"
    STANDBY_TOOK_OVER = "standby-took-over"
    INACTIVE_MEMBER_REJOINED = "held-member-rejoined"
    PARTITIONS_ASSIGNED = "partitions-assigned"

    # Changes planned by an administrator.
    INSTANCES_REGISTERED = "instances-registered"
    REGISTRATION_WITHDRAWN = "registration-withdrawn"
    MEMBERS_RETIRED = "members-retired"
    ROLES_ASSIGNED = "roles-assigned"

    # The lifecycle of the group.
    GROUP_CREATED = "group-created"
    GROUP_DELETED = "group-deleted"
    GROUP_EXPIRED = "group-expired"
    GROUP_REPAIRED = "group-repaired"
    OFFSETS_FOUND = "offsets-found"

    # Refusals.
    GROUP_FULL = "group-full"
    PROTOCOL_MISMATCH = "protocol-mismatch"
    SESSION_TIMEOUT_REFUSED = "session-timeout-refused"
    METADATA_TOO_LARGE = "metadata-too-large"
    UNKNOWN_MEMBER = "unknown-member"
    INSTANCE_FENCED = "instance-fenced"
    INSTANCE_DUEL = "instance-duel"

    # Repairs of the log.
    RECORD_OVERWRITTEN = "record-overwritten"

    UNKNOWN = "unknown"
    """Read from a log that a newer version wrote. Never written."""


KAFKAS_TRIGGERS = frozenset(
    {
        Cause.NEW_DYNAMIC_MEMBER,
        Cause.NEW_STATIC_MEMBER,
        Cause.METADATA_CHANGED,
        Cause.LEADER_REJOINED,
        Cause.STATIC_REPLACEMENT_CHANGED_PROTOCOL,
        Cause.STATIC_REPLACEMENT_DURING_SYNC,
        Cause.SESSION_EXPIRED,
        Cause.SYNC_TIMED_OUT,
        Cause.MEMBER_LEFT,
        Cause.MEMBER_REMOVED_BY_ADMIN,
        Cause.PENDING_MEMBER_LEFT,
        Cause.ASSIGNMENT_NOT_STORED,
        Cause.OVER_CAPACITY,
    }
)
"""The causes that start a rebalance in Kafka's coordinator (RS14)."""

REFUSED_WITHOUT_GROUP = frozenset({Cause.SESSION_TIMEOUT_REFUSED, Cause.METADATA_TOO_LARGE})
"""Refusals before the group is looked up: a group that does not exist is created for the event, and deleted again."""

PLANNED_TRIGGERS = frozenset(
    {
        Cause.REGISTRATION_COMPLETE,
        Cause.REGISTRATION_TIMED_OUT,
        Cause.REGISTRATION_WITHDRAWN,
        Cause.EXPANSION_DELAY_ELAPSED,
        Cause.LEARNERS_PROMOTED,
        Cause.LEARNER_TIMEOUT_ELAPSED,
        Cause.RETIREMENT_COMPLETE,
        Cause.RETIREMENT_TIMED_OUT,
        Cause.RETIREMENT_WITHDRAWN,
        Cause.GROUP_CONFIGURED,
        Cause.STANDBY_UNFIT,
        Cause.REBALANCE_REQUESTED,
        Cause.GROUP_RELEASED,
        Cause.PARTITIONS_UNASSIGNED,
    }
)
"""Triggers beyond Kafka's: an administrator planned, requested or configured the rebalance."""

TRIGGERS = KAFKAS_TRIGGERS | PLANNED_TRIGGERS

TEXTS = {
    Cause.NEW_DYNAMIC_MEMBER: "{member} joined as a new dynamic member",
    Cause.NEW_STATIC_MEMBER: "{member} joined as a new static member",
    Cause.METADATA_CHANGED: "{member} rejoined with a different subscription or different protocols",
    Cause.LEADER_REJOINED: "the leader {member} rejoined, which asks for a new assignment",
    Cause.STATIC_REPLACEMENT_CHANGED_PROTOCOL: (
        "{member} rejoined under a new member id with other protocols, so another one is selected"
    ),
    Cause.STATIC_REPLACEMENT_DURING_SYNC: (
        "{member} rejoined under a new member id while the leader was computing the assignment"
    ),
    Cause.SESSION_EXPIRED: "{member} was not heard from within its session timeout",
    Cause.SYNC_TIMED_OUT: "{member} did not ask for its assignment in time",
    Cause.MEMBER_LEFT: "{member} left the group",
    Cause.MEMBER_REMOVED_BY_ADMIN: "{member} was removed by its instance id, as an administrator does",
    Cause.PENDING_MEMBER_LEFT: "{member} left before it had joined",
    Cause.ASSIGNMENT_NOT_STORED: "the assignment from {member} could not be stored",
    Cause.OVER_CAPACITY: "the group was loaded with more members than group.max.size allows",
    Cause.REGISTRATION_COMPLETE: "{member} was the last of the registered members to join",
    Cause.REGISTRATION_TIMED_OUT: "the time for registered members to join ran out",
    Cause.EXPANSION_DELAY_ELAPSED: "the delay that gathers joins of new members was over",
    Cause.LEARNERS_PROMOTED: "learners were promoted by an administrator",
    Cause.LEARNER_TIMEOUT_ELAPSED: "the learner timeout elapsed",
    Cause.RETIREMENT_COMPLETE: "{member} was the last of the retired members to leave",
    Cause.RETIREMENT_TIMED_OUT: "the time for retired members to leave ran out, and the remaining ones were removed",
    Cause.RETIREMENT_WITHDRAWN: "the retirement of members was withdrawn",
    Cause.GROUP_CONFIGURED: "configs of the group were changed by an administrator",
    Cause.STANDBY_UNFIT: "the standby {member} could not take the lost leader's place: its client is too old for that",
    Cause.REBALANCE_REQUESTED: "an administrator asked for a rebalance",
    Cause.GROUP_RELEASED: "the group was released to the upstream cluster",
    Cause.PARTITIONS_UNASSIGNED: (
        "Muster asked the group to rebalance, since no member was assigned some of the partitions"
    ),
    Cause.REJOINED: "{member} rejoined",
    Cause.STATIC_REPLACEMENT_DURING_JOIN: "{member} came back under a new member id during the join phase",
    Cause.NOT_REJOINED: "{member} did not rejoin in time and was dropped",
    Cause.FIRST_JOIN_TIMED_OUT: "{member} waited five minutes for its first join and was dropped",
    Cause.ALL_JOINED: "all expected members had joined",
    Cause.JOIN_PHASE_TIMED_OUT: "the rebalance timeout elapsed",
    Cause.INITIAL_DELAY_ELAPSED: "the initial rebalance delay was over",
    Cause.ASSIGNMENT_RECEIVED: "the leader {member} sent the assignment",
    Cause.STATIC_RESTART_ABSORBED: "{member} came back under a new member id and kept its partitions",
    Cause.LEARNER_ADMITTED: "{member} joined as a learner; no partitions moved",
    Cause.STANDBY_ADMITTED: "{member} joined as a standby; no partitions moved",
    Cause.STANDBY_CALLED: "the standby {member} was given a lost member's partitions; no other member was affected",
    Cause.STANDBY_TOOK_OVER: "the standby {member} took over a lost member's partitions",
    Cause.INACTIVE_MEMBER_REJOINED: "{member}, a learner or standby, rejoined; no partitions moved",
    Cause.PARTITIONS_ASSIGNED: "the partitions for which Muster asked the group to rebalance are assigned",
    Cause.INSTANCES_REGISTERED: "an administrator registered instances that are to join",
    Cause.REGISTRATION_WITHDRAWN: "an administrator withdrew the registration of instances",
    Cause.MEMBERS_RETIRED: "an administrator retired members",
    Cause.ROLES_ASSIGNED: "the active members and the standbys were settled",
    Cause.GROUP_CREATED: "the group was created",
    Cause.GROUP_DELETED: "the group was deleted",
    Cause.GROUP_EXPIRED: "the empty group expired",
    Cause.GROUP_REPAIRED: "a record of the group could not be read, and an administrator had it re-created",
    Cause.OFFSETS_FOUND: "the group was not in the event log but has committed offsets: it was recreated",
    Cause.GROUP_FULL: "{member} was refused, the group has group.max.size members",
    Cause.PROTOCOL_MISMATCH: "{member} was refused, it has no protocol in common with the group",
    Cause.SESSION_TIMEOUT_REFUSED: (
        "{member} was refused, its session timeout is outside of group.min.session.timeout.ms and"
        " group.max.session.timeout.ms"
    ),
    Cause.METADATA_TOO_LARGE: "{member} was refused, its metadata is larger than --member-metadata-max-bytes",
    Cause.UNKNOWN_MEMBER: "{member} was refused, its member id is unknown",
    Cause.INSTANCE_FENCED: "{member} was fenced, another process has its instance id",
    Cause.RECORD_OVERWRITTEN: "a foreign record had replaced it in the event log: written again",
    Cause.INSTANCE_DUEL: "{member} and another live process keep taking the same instance id from each other",
    Cause.UNKNOWN: "a cause unknown to this version",
}
