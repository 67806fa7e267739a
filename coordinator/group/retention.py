"""Expiry of committed offsets by age, and of groups that have neither members nor offsets (section EX).

The sweep sends ExpireOffsets for one group after another; nothing here looks at a clock or keeps a deadline. The group
decides when the retention of an offset begins:

    no protocol type (a simple consumer's)    each offset from its commit                                EX4
    Empty                                     all of them from the time when the group became Empty      EX2
    Stable, `consumer`, subscriptions known   those of unsubscribed topics, from their commit            EX3
    anything else                             nothing expires                                            EX5

If a commit set its own retention (OffsetCommit v2 to v4), that one applies instead, and counts from the commit; but
nothing expires where the last row applies (EX6).

Offsets that are kept upstream expire there. They cannot be seen here, so an Empty group is assumed to have offsets
until the whole retention has passed since it became Empty.
"""

from collections.abc import Container, Mapping

from muster.coordinator.group.commands import CommittedAt
from muster.coordinator.group.settings import GroupSettings
from muster.coordinator.group.soft_state import SoftState
from muster.coordinator.group.turn import Turn
from muster.events.causes import Cause
from muster.events.events import GroupDeleted
from muster.events.state import NOT_CONFIGURED, Group, GroupState

MINUTE_MS = 60_000


def expired_offsets(
    group: Group,
    soft: SoftState,
    offsets: Mapping[tuple[str, int], CommittedAt],
    wall_ms: int,
    settings: GroupSettings,
) -> tuple[tuple[str, int], ...]:
    """Return the partitions whose committed offsets have expired at `wall_ms` (wall clock)."""
    image = group.image
    emptied_ms: int | None = None
    subscribed: Container[str] = ()
    if image.protocol_type is None:
        pass
    elif image.state is GroupState.EMPTY:
        emptied_ms = image.state_since_ms
    elif image.state is GroupState.STABLE and soft.subscribed_topics is not None:  # known only for consumers
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
    """Return the time before which the retention of an offset must have begun for the offset to have expired."""
    return wall_ms - retention_ms(settings)


def retention_ms(settings: GroupSettings) -> int:
    """Return the retention of offsets whose commit did not set one."""
    return settings.offsets_retention_minutes * MINUTE_MS


def _has_expired(offset: CommittedAt, wall_ms: int, horizon_ms: int, emptied_ms: int | None) -> bool:
    """Return whether the offset has expired at `wall_ms` (EX6)."""
    if offset.expire_ms is not None:
        return offset.expire_ms <= wall_ms
    return (offset.commit_ms if emptied_ms is None else emptied_ms) <= horizon_ms


def is_kept_without_offsets(group: Group, soft: SoftState) -> bool:
    """Return whether the group is kept even if it has no offset left.

    Unlike in Kafka (QK6), a group is kept while it has a pending member (KIP-394), so that the id that was handed out
    stays valid. A group with configs or registrations is kept until they are removed.
    """
    if group.state is not GroupState.EMPTY or soft.pending_members:
        return True
    return bool(group.registrations) or group.config != NOT_CONFIGURED


def may_have_offsets_upstream(group: Group, wall_ms: int, settings: GroupSettings) -> bool:
    """Return whether the group may still have offsets upstream, which are not known here (EX2)."""
    return settings.offsets_are_upstream and group.image.state_since_ms > _horizon_ms(wall_ms, settings)


def expire_group(turn: Turn) -> None:
    """Delete the group with its offsets (EX8)."""
    turn.caused_by_deadline(Cause.GROUP_EXPIRED, turn.now_ms)
    empty_since_ms = turn.image.state_since_ms
    turn.enter(GroupState.DEAD)
    turn.record(GroupDeleted, empty_since_ms=empty_since_ms, retention_ms=retention_ms(turn.settings))
