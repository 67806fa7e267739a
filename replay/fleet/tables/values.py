"""Numbers and times as columns have them: microseconds since 1970, days since 1970, names of members."""

from typing import Final, TypeAlias

from muster.events.state import Member
from muster.replay.rebalances.rebalance import MemberRef
from muster.replay.text.times import DAY_MS, Instant, wall_ms_of

Row: TypeAlias = tuple[object, ...]
"""A row: values in the order of its table's columns."""

_FIRST_MS: Final = -62_135_596_800_000
_LAST_MS: Final = 253_402_300_799_999
"""The years that can be written, 1 to 9999."""

FIRST_DAY: Final = _FIRST_MS // DAY_MS
LAST_DAY: Final = _LAST_MS // DAY_MS


def micros(wall_ms: int) -> int:
    """The microseconds of a wall clock in ms; beyond the years that can be written, the nearest that can be."""
    return min(max(wall_ms, _FIRST_MS), _LAST_MS) * 1_000


def micros_of(at: Instant | None) -> int | None:
    """The microseconds of an instant."""
    return None if at is None else wall_ms_of(at) * 1_000


def day_of(wall_ms: int) -> int:
    """The UTC day of a wall clock in ms, counted from 1970."""
    return micros(wall_ms) // (DAY_MS * 1_000)


def name_of(member: Member | MemberRef) -> str:
    """The member's name for administrators: its instance id, or its member id; of a client that is no member, its
    client id."""
    return member.group_instance_id or member.member_id or member.client_id
