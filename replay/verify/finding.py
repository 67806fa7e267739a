"""The findings of `verify`. Field names are those of the JSON output."""

from enum import StrEnum, unique
from typing import Final

import msgspec

from muster.events.ids import GroupId
from muster.replay.history.window import Bounds


@unique
class Check(StrEnum):
    """The kinds of checks."""

    READABLE = "readable"
    """Each record has a readable key, schema and value."""
    PARTITION = "partition"
    """A group's events are in the partition that its id maps to."""
    OWNER = "owner"
    """A partition has one owner at a time, which was elected before it wrote."""
    EPOCH = "epoch"
    """The owner's epoch never decreases."""
    LEVEL = "level"
    """The log's format level never decreases."""
    SEQ = "seq"
    """The events of a group's incarnation are numbered from 1 without gaps, except for those compaction removed."""
    TRANSITION = "transition"
    """The events of a decision end with a legal change of the group's own record."""
    INVARIANT = "invariant"
    """The group that results from its events satisfies the numbered invariants."""
    RULES = "rules"
    """Given the same requests, the rules decide the recorded events."""


_NOT_MUSTERS: Final = (
    "something other than Muster changed this log: find what else may write to it, and keep a copy (`muster replay"
    " export FILE`)"
)

ADVICE: Final = {
    Check.READABLE: (
        "an unknown schema comes from a newer Muster: verify with that version. Otherwise see what is lost with"
        " `muster groups repair GROUP`, or, where no group is named, `muster log repair`; neither changes anything"
        " without --yes"
    ),
    Check.PARTITION: _NOT_MUSTERS,
    Check.OWNER: "two processes may have owned the partition at once: see which of them run, and stop all but one",
    Check.EPOCH: "a former owner wrote after its successor: see which processes run, and stop all but one",
    Check.LEVEL: "an older Muster wrote to the log after a newer one: run only the newer version",
    Check.SEQ: _NOT_MUSTERS,
    Check.TRANSITION: _NOT_MUSTERS + "; if nothing else may, it is a bug in Muster: report it with the export",
    Check.INVARIANT: _NOT_MUSTERS + "; if nothing else may, it is a bug in Muster: report it with the export",
    Check.RULES: (
        "harmless if another version of Muster, with different rules, wrote it; otherwise it is a bug in"
        " Muster: report it with `muster replay export FILE --pseudonyms KEYFILE`"
    ),
}
"""Advice on what to do about a finding of each kind."""


class LogFinding(msgspec.Struct, frozen=True, kw_only=True):
    """A fault. Without a group it concerns the whole partition."""

    check: Check
    partition: int
    offset: int
    group_id: GroupId | None
    seq: int | None
    expected: str
    found: str


class Compacted(msgspec.Struct, frozen=True, kw_only=True):
    """A group that lost a part of its history to compaction: not a fault, but the rules cannot be run on the events
    after that.
    """

    group_id: GroupId
    partition: int
    missing: int
    unchecked: int  # events that were not checked by running the rules


class Verified(msgspec.Struct, frozen=True, kw_only=True):
    """The result. `findings` has the first ones, `found` is their total; likewise for `compacted`.

    `window` and `pattern`: the requested part of the log, which `groups`, `events`, `decided_again` and the findings
    refer to. `folded`: earlier events of its groups, which were checked as a basis for the window but are not reported.

    `decided_again`: how many of the `events` the rules decided as recorded. `passed_over`: unreadable records that were
    repaired. `strangers`: the number of foreign records, which readers skip. `unread`: unreadable parts, which could
    not be checked.
    """

    log: str
    partitions: int
    window: Bounds | None = None
    pattern: str | None = None
    records: int
    groups: int
    events: int
    decided_again: int
    folded: int = 0
    compacted_groups: int
    compacted: tuple[Compacted, ...]
    strangers: int
    passed_over: int
    unread: tuple[str, ...]
    found: int
    findings: tuple[LogFinding, ...]
    advice: dict[Check, str]
