"""The findings of `verify`. Field names are those of the JSON output."""

from enum import StrEnum, unique

import msgspec

from muster.events.ids import GroupId


@unique
class Check(StrEnum):
    """The kinds of checks."""

    READABLE = "readable"
    """Each record has a key, a schema and a value that can be read."""
    OWNER = "owner"
    """A partition has one owner at a time, who was elected before it wrote."""
    EPOCH = "epoch"
    """The owner's epoch never falls."""
    LEVEL = "level"
    """The log's format level never falls."""
    SEQ = "seq"
    """The events of a group's life are numbered from 1 without a gap, but for what compaction took."""
    TRANSITION = "transition"
    """The events of a decision end with a legal change of the group's own record."""
    INVARIANT = "invariant"
    """The group that its events make has the numbered invariants."""
    RULES = "rules"
    """The rules, given the same requests, decide the events that were recorded."""


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """Something that is not as it should be. Without a group it concerns the whole partition."""

    check: Check
    partition: int
    offset: int
    group_id: GroupId | None
    seq: int | None
    expected: str
    found: str


class Compacted(msgspec.Struct, frozen=True, kw_only=True):
    """A group of whose history compaction took a part: no fault, but the rules cannot be run on what is behind it."""

    group_id: GroupId
    partition: int
    missing: int
    unchecked: int  # events that the rules were not run for


class Verified(msgspec.Struct, frozen=True, kw_only=True):
    """The result. `findings` holds the first ones, `found` is how many there are.

    `decided_again` of the `events` were found by the rules as they were recorded. `passed_over` were unreadable, and
    are repaired. `strangers`: records that no owner wrote; readers skip them.
    """

    log: str
    partitions: int
    records: int
    groups: int
    events: int
    decided_again: int
    compacted: tuple[Compacted, ...]
    strangers: int
    passed_over: int
    found: int
    findings: tuple[Finding, ...]
