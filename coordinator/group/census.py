"""Counts over all members of a group, updated as they join, change and leave.

Without them each decision would have to iterate over all members. They can be recomputed from the members at any time
(`count`).

A large group keeps them in its soft state. A small one keeps them only while it rebalances, and is counted again for
the next change: that is cheap, and there are many small groups, so the memory of idle groups matters more.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from muster.events.ids import MemberId
from muster.events.state import INACTIVE_ROLES, Member, MemberRole
from muster.events.tables import SMALL, Table

_Rank = tuple[bool, int, MemberId]


def rank_of(member: Member) -> _Rank:
    """The sort key of members: active ones before inactive ones, then by the time of joining."""
    return member.is_inactive, member.joined_ms, member.member_id


class Census:
    """Member counts of one group. Create one with `count`; call `change` for each change of a member."""

    __slots__ = ("_elders", "_elders_gone", "_offers", "_roles", "_timeouts", "retiring", "size")

    def __init__(self) -> None:
        self.size = 0
        self.retiring = 0
        self._offers: Table[str, int] = Table()
        self._roles: Table[MemberRole, int] = Table()
        self._timeouts: Table[int, int] = Table()
        self._elders: tuple[_Rank, ...] = ()
        self._elders_gone = 0

    def copy(self) -> "Census":
        """Return an independent copy."""
        twin = object.__new__(Census)
        twin.size, twin.retiring = self.size, self.retiring
        twin._offers, twin._roles, twin._timeouts = self._offers.copy(), self._roles.copy(), self._timeouts.copy()
        twin._elders, twin._elders_gone = self._elders, self._elders_gone
        return twin

    @property
    def is_worth_keeping(self) -> bool:
        """True if keeping it costs less than counting again."""
        return self.size > SMALL

    # ---- queries --------------------------------------------------------------------------------

    def is_offered_by_all(self, protocol_name: str) -> bool:
        return self._offers.get(protocol_name, 0) == self.size

    def is_offered(self, protocol_name: str) -> bool:
        return protocol_name in self._offers

    def number_of(self, role: MemberRole) -> int:
        return self._roles.get(role, 0)

    @property
    def active(self) -> int:
        """The number of members that are, or are to be, in the assignment."""
        return self.size - sum(self.number_of(role) for role in INACTIVE_ROLES)

    @property
    def rebalance_timeout_ms(self) -> int:
        """The longest rebalance timeout (S14) as members sent it, which may be negative (K2); 0 without members."""
        return max(self._timeouts, default=0)

    def oldest(self, members: Mapping[MemberId, Member]) -> MemberId | None:
        """Return the first member by `rank_of`; `members`: the members that were counted. Kafka's choice is random
        (S12).
        """
        if not self.size:
            return None
        while self._elders_gone < len(self._elders):
            rank = self._elders[self._elders_gone]
            member = members.get(rank[2])
            if member is not None and rank_of(member) == rank:
                return member.member_id
            self._elders_gone += 1
        self._elders, self._elders_gone = tuple(sorted(map(rank_of, members.values()))), 0
        return self._elders[0][2]

    # ---- updates --------------------------------------------------------------------------------

    def change(self, before: Member | None, after: Member | None) -> None:
        """Count a member that joined (`before` is None), left (`after` is None), or changed."""
        if before is not None and after is not None and _counts_as_before(before, after):
            return
        if before is not None:
            self._add(before, -1)
        if after is not None:
            self._add(after, 1)
            if self._elders and rank_of(after) < self._elders[-1]:
                self._elders, self._elders_gone = (), 0  # it may be older than the remaining ones

    def _add(self, member: Member, number: int) -> None:
        self.size += number
        self.retiring += number * member.retiring
        for name in {protocol.name for protocol in member.protocols}:
            _add(self._offers, name, number)
        _add(self._roles, member.role, number)
        _add(self._timeouts, member.rebalance_timeout_ms, number)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Census):
            return NotImplemented
        return self._numbers() == other._numbers()

    __hash__ = None  # type: ignore[assignment]  # as for all that changes

    def _numbers(self) -> tuple[object, ...]:
        return self.size, self.retiring, self._offers, self._roles, self._timeouts


def count(members: Iterable[Member]) -> Census:
    """Count these members."""
    census = Census()
    for member in members:
        census.change(None, member)
    return census


def _add(table: Table[Any, int], key: Any, number: int) -> None:  # noqa: ANN401 -- of whatever is counted
    total = table.get(key, 0) + number
    if total:
        table[key] = total
    else:
        del table[key]


def _counts_as_before(before: Member, after: Member) -> bool:
    """Return whether the change leaves all counts unchanged, like an assignment, which rewrites every member."""
    return (
        before.member_id == after.member_id
        and before.protocols is after.protocols
        and before.role is after.role
        and before.retiring is after.retiring
        and before.rebalance_timeout_ms == after.rebalance_timeout_ms
        and before.joined_ms == after.joined_ms
    )
