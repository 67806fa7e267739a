"""Members, told apart as processes: who is who.

An instance id is an identity, and recorded. A client id at a host is a hypothesis: it is used where no two live members
of the group shared it. Else it is unknown which process came back as which member: behind a sidecar every host is the
sidecar's, and Java's default client ids are the same in each process. A pod that was moved has another address: it may
be the same process where its client id is its own.

A member that was dead already when its successor came has not shared anything with it, however long its session lasted.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable

import msgspec

from muster.events.state import Member
from muster.replay.incidents.grade import Grade


class ProcessIdentity(msgspec.Struct, frozen=True):
    """A process by its key: equal for members that are the same one. `grade` is how well that is known."""

    key: tuple[str, ...]
    grade: Grade


class Life(msgspec.Struct, frozen=True, kw_only=True):
    """The time in which a member was alive, as far as is known, in wall clock ms."""

    member: Member
    begin_ms: float
    end_ms: float = math.inf


class Identities:
    """The processes of the members of one stretch of history."""

    def __init__(self, lives: Iterable[Life]) -> None:
        lives = list(lives)
        dynamic = [life for life in lives if life.member.group_instance_id is None]
        told_apart = _told_apart(dynamic, _address)
        self._own_client_ids = _told_apart(dynamic, _client_id)
        self._processes = {life.member.member_id: _process(life.member, told_apart) for life in lives}

    def process_of(self, member: Member) -> ProcessIdentity:
        """The member's process."""
        return self._processes.get(member.member_id) or _process(member, frozenset())

    def kin(self, member: Member) -> Hashable:
        """Equal for members that may be one process, or are known to be. Who has moved keeps a client id of its own."""
        process = self.process_of(member)
        if process.grade is Grade.UNKNOWN:
            return process.grade, member.client_id
        if member.group_instance_id is None and member.client_id in self._own_client_ids:
            return process.grade, "moves", member.client_id
        return process.key


def _address(member: Member) -> tuple[str, ...]:
    return ("client", member.client_id, member.client_host)


def _client_id(member: Member) -> str:
    return member.client_id


def _process(member: Member, told_apart: frozenset[Hashable]) -> ProcessIdentity:
    if member.group_instance_id is not None:
        return ProcessIdentity(("instance", member.group_instance_id), Grade.RECORDED)
    if _address(member) in told_apart:
        return ProcessIdentity(_address(member), Grade.INFERRED)
    return ProcessIdentity(("member", member.member_id), Grade.UNKNOWN)


def _told_apart(lives: Iterable[Life], key: Callable[[Member], Hashable]) -> frozenset[Hashable]:
    """The keys that no two members had at the same time."""
    by_key: defaultdict[Hashable, list[Life]] = defaultdict(list)
    for life in lives:
        by_key[key(life.member)].append(life)
    return frozenset(each for each, sharing in by_key.items() if not _overlap(sharing))


def _overlap(lives: list[Life]) -> bool:
    end_ms = -math.inf
    for life in sorted(lives, key=lambda life: life.begin_ms):
        if life.begin_ms < end_ms:
            return True
        end_ms = max(end_ms, life.end_ms)
    return False
