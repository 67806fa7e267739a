"""The checks of a partition's groups. The most recently used ones are unpacked, the others packed.

A group's events come in bursts, one rebalance at a time, so that checks are rarely unpacked. An item that concerns all
groups is fed to a packed check when it is unpacked.
"""

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from typing import Final

from muster.events.ids import GroupId
from muster.replay.history.items import Broken, Coordinated
from muster.replay.packed import Packed
from muster.replay.verify.group_check import GroupCheck

GROUPS_MAX: Final = 128
"""The maximum number of unpacked checks, including the one that is being fed."""

MEMBERS_MAX: Final = 5_000
"""The maximum number of members of all unpacked checks, if there is more than one."""

TOLD_MAX: Final = 1_000
"""The maximum number of partition-wide items that a packed check may have missed."""

OfPartition = Coordinated | Broken
"""An item that concerns all groups of a partition."""


class GroupChecks:
    """Checks by group. The caller must first feed each check the partition-wide items that it has missed."""

    def __init__(self) -> None:
        self._groups: dict[GroupId, tuple[Packed[GroupCheck], int] | None] = {}
        """The checks, in the order in which they were added; a packed one with the number of items of `_told` that it
        was fed.
        """
        self._whole: OrderedDict[GroupId, GroupCheck] = OrderedDict()
        self._fed: GroupId | None = None  # the last one
        self._sizes: dict[GroupId, int] = {}  # the number of members of each unpacked check, and in total
        self._members = 0
        self._told: list[OfPartition] = []

    def __len__(self) -> int:
        return len(self._groups)

    def add(self, group_id: GroupId, check: GroupCheck) -> None:
        """Add a new group, which has missed nothing."""
        self._groups[group_id] = None
        self._whole[group_id] = check
        self._turn_to(group_id)

    def get(self, group_id: GroupId) -> tuple[GroupCheck, Sequence[OfPartition]] | None:
        """Return the check of a group, and the items that it has missed; None: the group is new."""
        check = self._whole.get(group_id)
        if check is not None:
            if group_id != self._fed:
                self._turn_to(group_id)
            return check, ()
        stored = self._groups.get(group_id)
        if stored is None:
            return None
        packed, told = stored
        self._groups[group_id] = None
        check = self._whole[group_id] = packed.value
        self._turn_to(group_id)
        return check, self._told[told:]

    def tell(self, item: OfPartition) -> Iterator[tuple[GroupCheck, Sequence[OfPartition]]]:
        """Add a partition-wide item; yield the checks to feed now, each with the items that it has missed."""
        self._told.append(item)
        for check in self._whole.values():
            yield check, (item,)
        if len(self._told) < TOLD_MAX:
            return
        for group_id, stored in self._groups.items():
            if stored is not None:
                packed, told = stored
                check = packed.value
                yield check, self._told[told:]
                self._groups[group_id] = Packed(check), 0
        self._told.clear()

    def end(self) -> Iterator[tuple[GroupCheck, Sequence[OfPartition]]]:
        """Yield the checks in the order in which they were added, each with the items that it has missed, and drop
        them.
        """
        for group_id, stored in self._groups.items():
            if stored is None:
                yield self._whole.pop(group_id), ()
            else:
                packed, told = stored
                yield packed.value, self._told[told:]
        self._groups.clear()

    def _turn_to(self, group_id: GroupId) -> None:
        """Make this the most recently used group, and pack the least recently used ones."""
        whole = self._whole
        whole.move_to_end(group_id)
        self._count(group_id)
        if self._fed is not None:
            self._count(self._fed)
        self._fed = group_id
        while len(whole) > GROUPS_MAX or (self._members > MEMBERS_MAX and len(whole) > 1):
            oldest, check = whole.popitem(last=False)
            self._members -= self._sizes.pop(oldest)
            self._groups[oldest] = Packed(check), len(self._told)

    def _count(self, group_id: GroupId) -> None:
        members = self._whole[group_id].members
        self._members += members - self._sizes.get(group_id, 0)
        self._sizes[group_id] = members
