"""Schedules: five members of one group, and steps that both servers can execute.

The steps as data, and their form in a file.

A step names a member and the oddities of its request; anything else is as from a well-behaved client. Each step is
possible in each situation, so any part of a schedule is a schedule, which shrinking requires.

An id may be `own`, `none` (empty, or null for an instance id), `old` (the previous one), `nobody` (never given to
anyone), `empty` (an instance id of no characters). `pose` takes all of another's identity instead.
"""

from pathlib import Path
from typing import Final, Literal

import msgspec

NAMES: Final = "abcde"

Choice = Literal["own", "none", "old", "nobody", "empty"]
Generation = Literal["own", "next", "past", "none"]
Partition = tuple[str, int]


class Step(msgspec.Struct, frozen=True, kw_only=True, tag_field="do", omit_defaults=True, forbid_unknown_fields=True):
    """`who` is a member's number; `version` overrides that of its era, if the API has it."""

    who: int = 0
    version: int | None = None


class Behave(Step, frozen=True, kw_only=True, tag=True):
    """Send the client's next request: join, sync, or heartbeat."""


class Gather(Step, frozen=True, kw_only=True, tag=True):
    """These members behave, in turns, until they are a stable group or have tried for long enough."""

    whos: tuple[int, ...]


class Pass(Step, frozen=True, kw_only=True, tag=True):
    """Time passes, until nothing more happens by itself."""


class Tidy(Step, frozen=True, kw_only=True, tag=True):
    """Members without an owner are removed, as by an administrator."""


class Restart(Step, frozen=True, kw_only=True, tag=True):
    """A member's process is replaced by another, without a member id and of this era, which joins."""

    era: int
    brief: bool = False


class Identified(Step, frozen=True, kw_only=True):
    """A request with a member's identity."""

    member_id: Choice = "own"
    instance_id: Choice = "own"
    pose: int | None = None


class JoinGroup(Identified, frozen=True, kw_only=True, tag=True):
    """`topics` and `offers` (the number of protocols) are remembered, like a new configuration.

    `brief`: with a session that soon expires. `twice`: repeated on another connection. `flip`: prefers the protocols in
    the other order, if no other member has a vote.
    """

    topics: tuple[str, ...] | None = None
    offers: int | None = None
    protocol_type: str | None = None
    session_ms: int | None = None
    brief: bool = False
    flip: bool = False
    twice: bool = False


class SyncGroup(Identified, frozen=True, kw_only=True, tag=True):
    """`assigns`: as a leader; to no member; to all but one; to an unknown member."""

    generation: Generation = "own"
    assigns: Literal["all", "none", "some", "strangers"] = "all"
    protocol: Literal["own", "wrong type", "wrong name", "null"] = "own"
    twice: bool = False


class Heartbeat(Identified, frozen=True, kw_only=True, tag=True):
    """A heartbeat."""

    generation: Generation = "own"


class Leaver(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """An entry of a LeaveGroup, with the ids of that member."""

    who: int
    member_id: Choice = "own"
    instance_id: Choice = "own"


class LeaveGroup(Step, frozen=True, kw_only=True, tag=True):
    """Up to v2 only the first one leaves."""

    leavers: tuple[Leaver, ...]


class Offset(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """An offset to commit; `metadata` is its number of characters, None: null."""

    topic: str
    partition: int
    offset: int
    metadata: int | None = 0


class OffsetCommit(Identified, frozen=True, kw_only=True, tag=True):
    """`retention_ms` only exists in v2 to v4."""

    offsets: tuple[Offset, ...]
    generation: Generation = "own"
    retention_ms: int = -1


class OffsetFetch(Step, frozen=True, kw_only=True, tag=True):
    """Fetch all partitions if none is named; `others`: of an unknown group, too (from v8 on)."""

    partitions: tuple[Partition, ...] = ()
    require_stable: bool = False
    others: bool = False


class OffsetDelete(Step, frozen=True, kw_only=True, tag=True):
    """An administrator's request."""

    partitions: tuple[Partition, ...]


class DescribeGroups(Step, frozen=True, kw_only=True, tag=True):
    """`others`: including a group that does not exist."""

    operations: bool = False
    others: bool = False


class ListGroups(Step, frozen=True, kw_only=True, tag=True):
    """List groups by state and type, in versions that support it."""

    states: tuple[str, ...] = ()
    types: tuple[str, ...] = ()


class DeleteGroups(Step, frozen=True, kw_only=True, tag=True):
    """`others`: including a group that does not exist."""

    others: bool = False


AnyStep = (
    Behave
    | Gather
    | Pass
    | Tidy
    | Restart
    | JoinGroup
    | SyncGroup
    | Heartbeat
    | LeaveGroup
    | OffsetCommit
    | OffsetFetch
    | OffsetDelete
    | DescribeGroups
    | ListGroups
    | DeleteGroups
)


class Cast(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A member at the start: static or not, and its versions."""

    static: bool
    era: int
    topics: tuple[str, ...]
    offers: int


class Schedule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`patient`: rebalances wait for minutes; otherwise briefly, and then continue without members that did not
    rejoin.
    """

    seed: int
    patient: bool
    protocol_type: str
    cast: tuple[Cast, ...]
    steps: tuple[AnyStep, ...]
    note: str = ""


def to_text(schedule: Schedule) -> str:
    """JSON, one step per line."""
    head = msgspec.to_builtins(schedule)
    lists = {name: head.pop(name) for name in ("cast", "steps")}
    parts = [f'  "{name}": {_line(value)}' for name, value in head.items()]
    for name, entries in lists.items():
        lines = ",\n".join(f"    {_line(each)}" for each in entries)
        parts.append(f'  "{name}": [\n{lines}\n  ]')
    return "{\n" + ",\n".join(parts) + "\n}\n"


def _line(value: object) -> str:
    text = msgspec.json.format(msgspec.json.encode(value), indent=0).decode()
    return " ".join(text.split("\n")) if "\n" in text else text


def from_text(text: str) -> Schedule:
    """Raises `msgspec.ValidationError`."""
    return msgspec.json.decode(text, type=Schedule)


def read(path: Path) -> Schedule:
    """A schedule from a file."""
    return from_text(path.read_text(encoding="utf-8"))


def describe(step: AnyStep) -> str:
    """A step in one line."""
    return _line(step)
