"""Processes that went and came back, in either order.

Whoever is known by its identity is paired with itself. Where members share a client id and a host, who came first after
one went is taken for it, and so is who came from another host with a client id that no two live members shared. Of
those that are left, who came under a client id that differs in a made-up last part alone ('app-7d9f-x2x8q' and
'app-7d9f-kzv6m', not 'app-1' and 'app-2') may have taken the other one's place; and where as many came as went under
names of their own, they may have replaced them. There the numbers are right, and the grade says that no more is known.
"""

from collections.abc import Iterable

import msgspec

from muster.events.ids import MemberId
from muster.events.state import Member
from muster.replay.incidents.episode.acts import AnyAct, Came, CameBack, Departure, Went
from muster.replay.incidents.episode.connections import MemberConnections
from muster.replay.incidents.episode.identity import Identities, ProcessIdentity
from muster.replay.incidents.grade import Grade
from muster.replay.incidents.windows import DEPLOYMENT_PROCESSES_MIN, REPLACED_MS


class Replacement(msgspec.Struct, frozen=True, kw_only=True):
    """A process that went and came back, in either order; a static one may not have been missed (`went` is None)."""

    process: ProcessIdentity
    went: Went | None
    came: Came | CameBack
    on_same_connection: bool = False
    """Whether it came on a connection that it had spoken on before: its process had not ended."""

    @property
    def is_elsewhere(self) -> bool:
        """Whether the one that came has the client id of the one that went, and another host."""
        return self.went is not None and self.went.member.client_host != self.came.member.client_host

    @property
    def is_renamed(self) -> bool:
        """Whether the one that came has another client id than the one that went."""
        return self.went is not None and self.went.member.client_id != self.came.member.client_id

    @property
    def former_id(self) -> MemberId:
        """The member id that it had before."""
        if self.went is not None:
            return self.went.member.member_id
        assert isinstance(self.came, CameBack)
        return self.came.replaced_member_id

    @property
    def begin_ms(self) -> int:
        """The first that was seen of it."""
        return self.came.at_ms if self.went is None else min(self.went.at_ms, self.came.at_ms)

    @property
    def gone_ms(self) -> int:
        """When the process was gone: its last sign of life, or its leave."""
        if isinstance(self.came, CameBack):
            return self.came.last_seen_ms
        assert self.went is not None
        return self.went.at_ms if self.went.how is Departure.LEFT else self.went.last_seen_ms

    @property
    def end_ms(self) -> int:
        """The last that was seen of it."""
        return self.came.at_ms if self.went is None else max(self.went.at_ms, self.came.at_ms)

    @property
    def acts(self) -> tuple[AnyAct, ...]:
        """The acts that it consists of."""
        return (self.came,) if self.went is None else (self.went, self.came)

    @property
    def member(self) -> Member:
        """The member by which it is named: the one that is gone, or else the new one."""
        return self.came.member if self.went is None else self.went.member


def replacements(
    acts: Iterable[AnyAct], identities: Identities, connections: MemberConnections
) -> tuple[Replacement, ...]:
    """The replacements among these acts, in order of their beginnings."""
    pairs = _Pairs(identities, connections)
    for act in acts:
        if isinstance(act, CameBack):
            pairs.come_back(act)
        elif isinstance(act, Came):
            pairs.come(act)
        elif isinstance(act, Went):
            pairs.go(act)
    pairs.guess()
    return tuple(sorted(pairs.found, key=lambda each: each.begin_ms))


class _Pairs:
    """Processes that went and processes that came, until they are paired: by their connections first."""

    def __init__(self, identities: Identities, connections: MemberConnections) -> None:
        self.found: list[Replacement] = []
        self._connections = connections
        self._identities = identities
        self._went: list[Went] = []
        self._came: list[Came] = []

    def come_back(self, came: CameBack) -> None:
        """A static member joined while the one before it was still a member."""
        on_same = self._connections.are_same_process(came.replaced_member_id, came.member.member_id)
        process = self._identities.process_of(came.member)
        self.found.append(Replacement(process=process, went=None, came=came, on_same_connection=on_same))

    def come(self, came: Came) -> None:
        """A member joined; it may have been there before."""
        recent = [went for went in self._went if came.at_ms - went.at_ms <= REPLACED_MS]
        for went in recent:
            if self._connections.are_same_process(went.member.member_id, came.member.member_id):
                self._went.remove(went)
                self._pair(went, came)
                return
        alike = [went for went in recent if self._identities.may_be_same(went.member, came.member)]
        at_home = [went for went in alike if went.member.client_host == came.member.client_host]
        for went in (at_home or alike)[:1]:
            self._went.remove(went)
            self._pair(went, came)
            return
        self._came.append(came)

    def go(self, went: Went) -> None:
        """A member is gone; its successor may have come before it was missed."""
        for came in self._came:
            is_other = came.member.member_id != went.member.member_id
            if is_other and came.at_ms >= went.since_ms and self._identities.may_be_same(went.member, came.member):
                self._came.remove(came)
                self._pair(went, came)
                return
        self._went.append(went)

    def guess(self) -> None:
        """Pair what is left: by the base of their client ids, and then all, if as many came as went."""
        for went in list(self._went):
            came = next((each for each in self._came if _may_be_renamed(went, each)), None)
            if came is not None:
                self._went.remove(went)
                self._came.remove(came)
                self.found.append(Replacement(process=_somebody(went), went=went, came=came))
        pairs = list(zip(self._went, self._came, strict=False))
        if len(self._went) != len(self._came) or len(pairs) < DEPLOYMENT_PROCESSES_MIN:
            return
        if all(_may_follow(went, came) for went, came in pairs):
            for went, came in pairs:
                self.found.append(Replacement(process=_somebody(went), went=went, came=came))

    def _pair(self, went: Went, came: Came) -> None:
        former, later = (self._identities.process_of(act.member) for act in (went, came))
        process = former if former.key == later.key else _somebody(went)
        on_same = self._connections.are_same_process(went.member.member_id, came.member.member_id)
        if on_same:
            process = ProcessIdentity(former.key, Grade.RECORDED)
        self.found.append(Replacement(process=process, went=went, came=came, on_same_connection=on_same))


def _may_follow(went: Went, came: Came) -> bool:
    by_itself = went.how is Departure.LEFT or went.is_silent
    return by_itself and went.since_ms <= came.at_ms <= went.at_ms + REPLACED_MS


def _may_be_renamed(went: Went, came: Came) -> bool:
    """Whether it came in time, and its client id is the other one's but for a part that was made up."""
    former, later = went.member, came.member
    if former.group_instance_id is not None or later.group_instance_id is not None or not _may_follow(went, came):
        return False
    return former.client_id != later.client_id and _base(former.client_id) == _base(later.client_id)


def _base(client_id: str) -> str:
    """The client id without a last part that was made up, as pods have it. A number is a place of its own."""
    base, _, last = client_id.rpartition("-")
    return client_id if last.isdigit() or not base else base


def _somebody(went: Went) -> ProcessIdentity:
    return ProcessIdentity(("member", went.member.member_id), Grade.UNKNOWN)
