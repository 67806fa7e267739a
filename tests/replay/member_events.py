"""Members written by hand, the events on their keys, and their causes; histories.py turns them into transitions."""

from typing import Any

import msgspec

from muster.events.causes import Cause
from muster.events.events import (
    AnyMemberEvent,
    MemberJoined,
    MemberRejoined,
    MemberRemoved,
    StaticMemberReplaced,
    Why,
)
from muster.events.ids import GroupId, GroupInstanceId, MemberId
from muster.events.state import NO_GENERATION, Group, Member, Protocol, new_group


def uuid_of(number: int) -> str:
    return f"{number:08x}-0000-4000-8000-000000000000"


class MemberEvents:
    """The current group, and what may happen to its members. Nothing is applied here."""

    def __init__(self, group_id: str, *, begin_ms: int) -> None:
        self.group_id = GroupId(group_id)
        self.now_ms = begin_ms
        self.epoch = 0
        self.group: Group = new_group(self.group_id, incarnation=begin_ms, wall_ms=begin_ms)
        self._ids = 0

    def member(
        self,
        name: str,
        *,
        static: bool = True,
        host: str = "/10.0.0.7",
        client_id: str = "rdkafka",
    ) -> Member:
        """Return a member that is not in the group yet."""
        self._ids += 1
        stem = name if static else client_id
        return Member(
            member_id=MemberId(f"{stem}-{uuid_of(self._ids)}"),
            group_instance_id=GroupInstanceId(name) if static else None,
            client_id=client_id,
            client_host=host,
            principal="User:billing",
            session_timeout_ms=45_000,
            rebalance_timeout_ms=300_000,
            protocols=(Protocol(name="range", metadata=b"\x00\x01"),),
            assignment=b"",
            assigned_generation_id=NO_GENERATION,
            joined_ms=self.now_ms,
        )

    def joined(self, member: Member, *, reason: str | None = None) -> AnyMemberEvent:
        cause = Cause.NEW_DYNAMIC_MEMBER if member.group_instance_id is None else Cause.NEW_STATIC_MEMBER
        return MemberJoined(**self._member(member), why=self.why(cause, member, reason=reason))

    def rejoined(self, member: Member, cause: Cause = Cause.REJOINED, *, reason: str | None = None) -> AnyMemberEvent:
        return MemberRejoined(**self._member(member), why=self.why(cause, member, reason=reason))

    def replaced(self, name: str, cause: Cause, *, host: str = "/10.0.0.7") -> AnyMemberEvent:
        """A new process joins with the instance id of a member."""
        old = self.group.members[self.group.instances[GroupInstanceId(name)]]
        fresh = self.member(name, host=host)
        new = msgspec.structs.replace(old, member_id=fresh.member_id, client_host=host)
        return StaticMemberReplaced(
            **self._member(new),
            replaced_member_id=old.member_id,
            replaced_client_id=old.client_id,
            replaced_client_host=old.client_host,
            why=self.why(cause, new),
        )

    def removed(
        self, member: Member, cause: Cause, *, silent_ms: int = 0, reason: str | None = None, request: bool = False
    ) -> AnyMemberEvent:
        why = self.why(cause, member, reason=reason) if request else self.why_of_timer(cause, member)
        return MemberRemoved(
            **self._member(member, last_seen_ms=self.now_ms - silent_ms, longest_silence_ms=min(silent_ms, 3_200)),
            why=why,
        )

    def _member(
        self, member: Member, *, last_seen_ms: int | None = None, longest_silence_ms: int = 0
    ) -> dict[str, Any]:
        return {
            **self._head(),
            "member": member,
            "last_seen_ms": self.now_ms if last_seen_ms is None else last_seen_ms,
            "longest_silence_ms": longest_silence_ms,
        }

    def why(self, cause: Cause, member: Member | None = None, *, reason: str | None = None) -> Why:
        """Return the `Why` of a request."""
        return Why(
            cause=cause,
            member_id=member.member_id if member else None,
            group_instance_id=member.group_instance_id if member else None,
            client_id=member.client_id if member else "adminclient-1",
            client_host=member.client_host if member else "/10.0.0.99",
            principal="User:billing",
            api_key=11,
            api_version=9,
            client_reason=reason,
            arrived_ms=self.now_ms,
            decided_ms=self.now_ms,
        )

    def why_of_timer(self, cause: Cause, member: Member | None = None) -> Why:
        return Why(
            cause=cause,
            member_id=member.member_id if member else None,
            group_instance_id=member.group_instance_id if member else None,
            client_id=member.client_id if member else None,
            client_host=member.client_host if member else None,
            principal=member.principal if member else None,
            arrived_ms=self.now_ms,
            decided_ms=self.now_ms,
        )

    def _head(self) -> dict[str, Any]:
        return {
            "group_id": self.group_id,
            "incarnation": self.group.incarnation,
            "seq": 0,
            "owner_epoch": self.epoch,
        }
