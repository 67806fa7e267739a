"""Why the former owner of a partition owned it no more, as far as this process knows at the takeover.

What belongs here: what the log says of it, and whom to ask else. What it must not know: who else shares the log.
Nothing is guessed, and nothing is asked of anybody: a takeover does not wait for it.
"""

from collections.abc import Callable

from muster.coordinator.runtime.partition.owner import Owner
from muster.events.events import CoordinatorStopped
from muster.events.ownership import OwnershipEnd, OwnershipEndCause
from muster.events.projector import Projector

EndOf = Callable[[int, str], OwnershipEnd | None]
"""Tells why this former owner of this partition owned it no more; None: it is not known."""


def nobody_knows(_number: int, _owner_before: str) -> OwnershipEnd | None:
    """Tell nothing: the default, where no processes share the log."""
    return None


def end_of_former_owner(owner: Owner, number: int, projector: Projector, end_of: EndOf) -> OwnershipEnd | None:
    """Return why the last owner that was ready owned the partition no more; None: there is none, or it is not known."""
    before, owner_before = projector.before_election, projector.served_by
    if before is None or owner_before is None:
        return None
    if isinstance(before, CoordinatorStopped) and before.owner == owner_before:
        return OwnershipEnd(cause=OwnershipEndCause.STOPPED)
    if owner_before == owner.name and owner.old_leases.has_served(number):  # else another process of that name
        return OwnershipEnd(cause=OwnershipEndCause.TAKEN_BACK) if before.owner == owner_before else None
    return end_of(number, owner_before)
