"""Schedules: five members of one group, and steps that each of two servers can be asked to take.

The steps as data, and their form in a file.

A step names whose turn it is and what is odd about the request; what is not said is as a well-behaved client has it.
Each step can be taken in each situation: so any part of a schedule is a schedule, which is what shrinking needs.

An id may be chosen as `own`, `none` (empty, or null for an instance id), `old` (the one before), `nobody` (one that was
given to nobody), `empty` (an instance id of no characters). `pose` takes all of somebody else's identity instead.
"""

from pathlib import Path
from typing import Final, Literal

import msgspec

NAMES: Final = "abcde"

Choice = Literal["own", "none", "old", "nobody", "empty"]
Generation = Literal["own", "next", "past", "none"]
Partition = tuple[str, int]


class Step(msgspec.Struct, frozen=True, kw_only=True, tag_field="do", omit_defaults=True, forbid_unknown_fields=True):
    """`who` is a number of a member; `version` another than that of its era, if the API has it."""

    who: int = 0
    version: int | None = None


class Behave(Step, frozen=True, kw_only=True, tag=True):
    """Send a client's next request: join, sync, or heartbeat."""


class Gather(Step, frozen=True, kw_only=True, tag=True):
    """These members behave, in turns, until they are a stable group or have tried for long enough."""

    whos: tuple[int, ...]


class Pass(Step, frozen=True, kw_only=True, tag=True):
    """Time passes, until nothing more happens by itself."""


class Tidy(Step, frozen=True, kw_only=True, tag=True):
    """Those who are nobody's are removed, as an administrator does."""


class Restart(Step, frozen=True, kw_only=True, tag=True):
    """The process of a member is replaced by another, which knows no member id and speaks this era, and it joins."""

    era: int
    brief: bool = False


class Identified(Step, frozen=True, kw_only=True):
    """A request in which somebody says who it is."""

    member_id: Choice = "own"
    instance_id: Choice = "own"
    pose: int | None = None


class JoinGroup(Identified, frozen=True, kw_only=True, tag=True):
    """`topics` and `offers` (how many protocols) are remembered, as a new configuration would be.

    `brief`: with a session that soon ends. `twice`: the same again, on another connection. `flip`: prefers the
    protocols in the other order, if nobody else has a vote.
    """

    topics: tuple[str, ...] | None = None
    offers: int | None = None
    protocol_type: str | None = None
    session_ms: int | None = None
    brief: bool = False
    flip: bool = False
    twice: bool = False


class SyncGroup(Identified, frozen=True, kw_only=True, tag=True):
    """`assigns`: what a leader would; to nobody; to all but one; to somebody who is no member."""

    generation: Generation = "own"
    assigns: Literal["all", "none", "some", "strangers"] = "all"
    protocol: Literal["own", "wrong type", "wrong name", "null"] = "own"
    twice: bool = False


class Heartbeat(Identified, frozen=True, kw_only=True, tag=True):
    """A sign of life."""

    generation: Generation = "own"


class Leaver(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """An entry of a LeaveGroup, with the ids of that member."""

    who: int
    member_id: Choice = "own"
    instance_id: Choice = "own"


class LeaveGroup(Step, frozen=True, kw_only=True, tag=True):
    """Up to v2 the first one alone leaves."""

    leavers: tuple[Leaver, ...]


class Offset(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """An offset to commit; `metadata` is its number of characters, None: null."""

    topic: str
    partition: int
    offset: int
    metadata: int | None = 0


class OffsetCommit(Identified, frozen=True, kw_only=True, tag=True):
    """`retention_ms` is heard in v2 to v4."""

    offsets: tuple[Offset, ...]
    generation: Generation = "own"
    retention_ms: int = -1


class OffsetFetch(Step, frozen=True, kw_only=True, tag=True):
    """Fetch all partitions when none is named; `others`: of an unknown group, too (from v8 on)."""

    partitions: tuple[Partition, ...] = ()
    require_stable: bool = False
    others: bool = False


class OffsetDelete(Step, frozen=True, kw_only=True, tag=True):
    """As an administrator does."""

    partitions: tuple[Partition, ...]


class DescribeGroups(Step, frozen=True, kw_only=True, tag=True):
    """`others`: a group that is not there, too."""

    operations: bool = False
    others: bool = False


class ListGroups(Step, frozen=True, kw_only=True, tag=True):
    """List groups by state and type, in versions that know them."""

    states: tuple[str, ...] = ()
    types: tuple[str, ...] = ()


class DeleteGroups(Step, frozen=True, kw_only=True, tag=True):
    """`others`: a group that is not there, too."""

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
    """A member at the start: static or not, and the versions that it speaks."""

    static: bool
    era: int
    topics: tuple[str, ...]
    offers: int


class Schedule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`patient`: rebalances wait for minutes; else for a moment, and then go on without those who did not come."""

    seed: int
    patient: bool
    protocol_type: str
    cast: tuple[Cast, ...]
    steps: tuple[AnyStep, ...]
    note: str = ""


def to_text(schedule: Schedule) -> str:
    """JSON, one step a line."""
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
