"""Describes the progress of a move: what members have done, which ones it waits for, and for how long at most."""

import shlex
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Protocol

from muster.durations import readable

if TYPE_CHECKING:  # the commands import this file for their help, too
    from muster.coordinator.group.outcomes import GroupMove, MovingMember

_SHOWN = 5
LATE_MAY = (
    "a process that still runs may go on consuming its partitions, with its commits refused, until it rejoins: "
    "restart those that hang"
)
DROPPED_MAY = "a process that still runs may go on consuming its partitions, with its commits refused: restart it"


class Named(Protocol):
    """A member, with the fields by which messages identify it."""

    @property
    def group_instance_id(self) -> str | None: ...
    @property
    def client_id(self) -> str: ...
    @property
    def client_host(self) -> str: ...


def names(members: Iterable[Named]) -> str:
    """List some of them for a message."""
    listed = [f"{each.group_instance_id or each.client_id} at {each.client_host.removeprefix('/')}" for each in members]
    shown = ", ".join(listed[:_SHOWN])
    return f"{shown} and {len(listed) - _SHOWN} more" if len(listed) > _SHOWN else shown


def already_moving(group_id: str) -> str:
    """Return the refusal of another move, with the command that shows the current one."""
    return f"it is moving already: muster members list {shlex.quote(group_id)} says how far"


def progress(move: "GroupMove") -> str:
    """Describe what the members have done, and which ones are waited for."""
    waits = waiting(move)
    return f"{done(move)}; {waits}" if waits else done(move)


def done(move: "GroupMove") -> str:
    """Describe what the members have done so far, or did until the end."""
    dropped = len(dropped_of(move))
    too_late = move.members - move.back - move.left - len(move.waits_for) - dropped
    counts = [
        (move.back, "rejoined"),
        (move.left, "left"),
        (dropped, "been dropped by the cluster"),
        (too_late, "not rejoined in time"),
    ]
    if move.members == 1:
        return f"its only member has {next((what for count, what in counts if count), 'not rejoined yet')}"
    if same := [what for count, what in counts if count == move.members and count]:
        return f"all its {move.members} members have {same[0]}"
    said = [f"{count} {'has' if count == 1 else 'have'} {what}" for count, what in counts if count]
    return f"of its {move.members} members {', '.join(said) or 'none has rejoined yet'}"


def late(move: "GroupMove") -> str:
    """Name the members that have not rejoined in time, or were dropped, and the consequence; empty if there are
    none.
    """
    overdue, dropped = overdue_of(move), dropped_of(move)
    sessions = "its session" if len(dropped) == 1 else "their sessions"
    parts = (
        f"not rejoined in time: {names(overdue)}; {LATE_MAY}" if overdue else "",
        f"dropped by the cluster ({sessions} ended): {names(dropped)}; {DROPPED_MAY}" if dropped else "",
    )
    return "; ".join(filter(None, parts))


def overdue_of(move: "GroupMove") -> "list[MovingMember]":
    """Return the members that were waited for until their time was over."""
    return [each for each in move.late if not each.was_dropped]


def dropped_of(move: "GroupMove") -> "list[MovingMember]":
    """Return the members that the cluster upstream dropped before Muster had answered them."""
    return [each for each in move.late if each.was_dropped]


def waiting(move: "GroupMove") -> str:
    """Name the members that are waited for, and for how long at most; empty if there are none."""
    working = [each for each in move.waits_for if each.is_notified]
    silent = [each for each in move.waits_for if not each.is_notified]
    parts = [
        f"for {names(members)}{what}{_at_most(members)}"
        for members, what in ((working, " to rejoin"), (silent, ", not heard from yet"))
        if members
    ]
    return f"waits {'; '.join(parts)}" if parts else ""


def _at_most(members: Sequence["MovingMember"]) -> str:
    known = [each.wait_ms for each in members if each.wait_ms is not None]
    return f", for {readable(max(known))} at most" if len(known) == len(members) else ""
