"""What expires: committed offsets by their age, and groups that have neither members nor offsets (section EX).

The shell asks once in a while, group by group; nothing here looks at a clock or keeps a deadline. What a group's
offsets age from depends on the group:

    no protocol type (a simple consumer's)    each offset from its commit                                EX4
    Empty                                     all of them from the moment the group became Empty         EX2
    Stable, `consumer`, subscriptions known   those of topics that nobody subscribes, from their commit  EX3
    anything else                             nothing expires                                            EX5

A commit that named a retention (OffsetCommit v2 to v4) goes by that alone, where anything expires at all (EX6).

Offsets that are kept upstream expire there. They cannot be seen here, so that an Empty group is taken to have some for
as long as they would be kept from the moment it became Empty.
"""

from collections.abc import Container, Mapping

from muster.coordinator.group.commands import CommittedAt
from muster.coordinator.group.settings import GroupSettings
from muster.coordinator.group.soft import Soft
from muster.coordinator.group.turn import Turn
from muster.events.causes import Cause
from muster.events.events import GroupDeleted
from muster.events.state import NOT_CONFIGURED, Group, GroupState

MINUTE_MS = 60_000


def expired_offsets(
    group: Group,
    soft: Soft,
    offsets: Mapping[tuple[str, int], CommittedAt],
    wall_ms: int,
    settings: GroupSettings,
) -> tuple[tuple[str, int], ...]:
    """Of the offsets that are committed, the partitions of those that have expired at `wall_ms` (wall clock)."""
    image = group.image
    emptied_ms: int | None = None
    subscribed: Container[str] = ()
    if image.protocol_type is None:
        pass
    elif image.state is GroupState.EMPTY:
        emptied_ms = image.state_since_ms
    elif image.state is GroupState.STABLE and soft.subscribed_topics is not None:  # of consumers alone it is known
        subscribed = soft.subscribed_topics
    else:
        return ()
    horizon_ms = _horizon_ms(wall_ms, settings)
    return tuple(
        partition
        for partition, offset in offsets.items()
        if partition[0] not in subscribed and _has_expired(offset, wall_ms, horizon_ms, emptied_ms)
    )


def _horizon_ms(wall_ms: int, settings: GroupSettings) -> int:
    """What ages from then or earlier has reached the retention."""
    return wall_ms - settings.offsets_retention_minutes * MINUTE_MS


def _has_expired(offset: CommittedAt, wall_ms: int, horizon_ms: int, emptied_ms: int | None) -> bool:
    """EX6: now, at `wall_ms`."""
    if offset.expire_ms is not None:
        return offset.expire_ms <= wall_ms
    return (offset.commit_ms if emptied_ms is None else emptied_ms) <= horizon_ms


def outlives_its_offsets(group: Group, soft: Soft) -> bool:
    """Whether the group stays though it may have no offset left.

    Unlike in Kafka (QK6) it does while somebody is between the two steps of a first join (KIP-394): the id that was
    handed out is to be good for the second one. What was set for the group, or registered, is nobody's to forget.
    """
    if group.state is not GroupState.EMPTY or soft.pending:
        return True
    return bool(group.registrations) or group.config != NOT_CONFIGURED


def may_have_offsets_upstream(group: Group, wall_ms: int, settings: GroupSettings) -> bool:
    """Whether the group stays for the sake of offsets that are not known here (EX2)."""
    return settings.offsets_are_upstream and group.image.state_since_ms > _horizon_ms(wall_ms, settings)


def expire_group(turn: Turn) -> None:
    """EX8: at once, whatever the retention; its offsets go with it."""
    turn.because_time_passed(Cause.GROUP_EXPIRED, turn.now_ms)
    turn.enter(GroupState.DEAD)
    turn.record(GroupDeleted)
