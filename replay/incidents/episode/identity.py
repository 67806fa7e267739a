"""Identifies the processes of members.

An instance id is a recorded identity. A client id with a host is a hypothesis, used only if no two live members of the
group shared it. Otherwise it is not known which process rejoined as which member: behind a sidecar every host is the
sidecar's, and Java's default client ids are the same in each process. A pod that was rescheduled has another address,
but may be the same process if no other member has its client id.

A member that was dead when its successor joined did not share these with it, however long its session lasted.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable

import msgspec

from muster.events.state import Member
from muster.replay.incidents.grade import Grade


class ProcessIdentity(msgspec.Struct, frozen=True):
    """A process. `key` is equal for members that are the same process; `grade` is how certain that is."""

    key: tuple[str, ...]
    grade: Grade


class Life(msgspec.Struct, frozen=True, kw_only=True):
    """The time in which a member was alive, as far as it is known, in wall clock ms."""

    member: Member
    begin_ms: float
    end_ms: float = math.inf


class Identities:
    """The processes of an episode's members."""

    def __init__(self, lives: Iterable[Life]) -> None:
        lives = list(lives)
        dynamic = [life for life in lives if life.member.group_instance_id is None]
        told_apart = _told_apart(dynamic, _address)
        self._own_client_ids = _told_apart(dynamic, _client_id)
        self._processes = {life.member.member_id: _process(life.member, told_apart) for life in lives}

    def process_of(self, member: Member) -> ProcessIdentity:
        return self._processes.get(member.member_id) or _process(member, frozenset())

    def kin(self, member: Member) -> Hashable:
        """Return a key that is equal for members that may be one process; a rescheduled process keeps its client id."""
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
    """Return the keys that no two members had at the same time."""
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
