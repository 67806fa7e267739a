"""Finds addresses (client id and host) that two live members had at once, so that their processes look the same.

A process that was dead when its successor joined did not share the address, even if its session had not expired.
"""

import math

import msgspec

from muster.events.causes import Cause
from muster.events.events import AnyMemberEvent, GroupDeleted, MemberEvent, MemberRemoved, StaticMemberReplaced
from muster.events.ids import MemberId
from muster.events.state import Group, Member
from muster.replay.history.clock import BEGIN, ClockReading, SteadyClock
from muster.replay.history.items import Happened, Item

Address = tuple[str, str]


class _Life(msgspec.Struct, kw_only=True):
    address: Address
    successor_ms: float = math.inf  # when the next member joined from this address


class SharedAddresses:
    """A fold over a group's items that keeps the live members and the shared addresses.

    `group`, `clock`: their state before the first item.
    """

    def __init__(self, group: Group | None = None, clock: ClockReading = BEGIN) -> None:
        self._clock = SteadyClock(clock)
        self._lives: dict[MemberId, _Life] = {}
        self._newest: dict[Address, _Life] = {}
        """The live member that joined last from each address. All others from there have a successor."""
        self._shared: set[Address] = set()
        members = group.members.values() if group is not None else ()
        for member in sorted(members, key=lambda member: member.joined_ms):
            self._begin(member, member.joined_ms)

    def feed(self, item: Item) -> None:
        if not isinstance(item, Happened):
            return
        event, _ = self._clock.steadied(item.event)
        if isinstance(event, MemberEvent):
            self._of_member(event)
        elif isinstance(event, GroupDeleted):
            self._lives.clear()
            self._newest.clear()

    def end(self) -> None:
        """End the history: a member that is still live shared its address with those that joined from there later."""
        for life in self._lives.values():
            self._end(life, math.inf)

    def has(self, member: Member) -> bool:
        """Return whether two members had this member's address at the same time."""
        return address_of(member) in self._shared

    def _of_member(self, event: AnyMemberEvent) -> None:
        member = event.member
        if isinstance(event, StaticMemberReplaced):
            self._pop(event.replaced_member_id)
        elif isinstance(event, MemberRemoved):
            life = self._pop(member.member_id)
            if life is not None:
                is_silent = event.why.cause is Cause.SESSION_EXPIRED
                self._end(life, event.last_seen_ms if is_silent else event.why.decided_ms)
            return
        if member.member_id not in self._lives:
            self._begin(member, event.why.decided_ms)

    def _begin(self, member: Member, came_ms: int) -> None:
        if member.group_instance_id is not None:
            return
        address = address_of(member)
        if address in self._newest:
            self._newest[address].successor_ms = came_ms
        self._lives[member.member_id] = self._newest[address] = _Life(address=address)

    def _pop(self, member_id: MemberId) -> _Life | None:
        life = self._lives.pop(member_id, None)
        if life is not None and self._newest.get(life.address) is life:
            del self._newest[life.address]
        return life

    def _end(self, life: _Life, at_ms: float) -> None:
        if life.successor_ms < at_ms:
            self._shared.add(life.address)


def address_of(member: Member) -> Address:
    """Return the client id and the host of the member's process."""
    return member.client_id, member.client_host
