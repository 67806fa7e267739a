"""Acts: single things that happened to a member or to the group; `reading_acts.py` reads them from transitions.

An act interprets nothing: `identity.py` finds out which process joined under a new member id, and `kinds/` decides
which incident an act belongs to.

Times are wall clock ms of the event's decision, durations are in ms; `seq` is that of the event.
"""

from collections.abc import Iterable
from enum import StrEnum, unique

import msgspec

from muster.events.causes import Cause
from muster.events.connection import LastConnection
from muster.events.consumer_protocol import subscribed_topics
from muster.events.events import AnyGroupEvent, JoinRefused, MemberFenced, Why
from muster.events.ids import MemberId
from muster.events.state import Member
from muster.replay.rebalances.rebalance import ValueChange


@unique
class Departure(StrEnum):
    """How a member left the group."""

    LEFT = "left"
    """It sent a LeaveGroup."""
    REMOVED = "removed"
    """An administrator removed it."""
    EXPIRED = "expired"
    """Its session expired."""
    NOT_REJOINED = "not-rejoined"
    """It did not rejoin within the rebalance timeout."""
    NOT_SYNCED = "not-synced"
    """It joined, but did not sync in time."""
    PLANNED = "planned"
    """It was retired, released, or over a limit."""


SILENT = frozenset({Departure.EXPIRED, Departure.NOT_REJOINED, Departure.NOT_SYNCED})

ConnectionKey = tuple[int, int]
"""A connection's owner_epoch and its number, which is unique within the epoch."""


class Act(msgspec.Struct, frozen=True, kw_only=True):
    """A single thing that happened to a member or the group. `why` is the event's.

    `connection`: the request's connection; None: there was no request (a timer), or it is not recorded.
    """

    seq: int
    at_ms: int
    why: Why
    connection: ConnectionKey | None = None

    @property
    def since_ms(self) -> int:
        """When it began: for a silence, when the member was last heard from."""
        return self.at_ms


class Came(Act, frozen=True, kw_only=True):
    """A new member joined. `planned`: an administrator had registered it, or made it a learner or standby."""

    member: Member
    planned: bool


class CameBack(Act, frozen=True, kw_only=True):
    """A static member rejoined under a new member id; `absorbed`: no rebalance was needed.

    `last_seen_ms`: the earliest time at which the old process may have ended. `heard`: whether it was heard from at
    that time; False: not since a takeover; None: not recorded. `longest_silence_ms`: its longest silence, including
    the last one. `last_connection`: the connection that the old process last used; None: not known.
    """

    member: Member
    before: Member | None  # None: not known
    last_connection: LastConnection | None = None
    last_connection_key: ConnectionKey | None = None
    replaced_member_id: MemberId
    replaced_client_host: str
    last_seen_ms: int
    longest_silence_ms: int
    heard: bool | None
    absorbed: bool

    @property
    def since_ms(self) -> int:
        """When the old process was last heard from."""
        return self.last_seen_ms

    @property
    def topics(self) -> frozenset[str] | None:
        """The topics that it subscribes to; None if they cannot be decoded."""
        return topics_of(self.member)

    @property
    def changed_topics(self) -> bool:
        """True if it subscribes to other topics than the old process, as far as they can be decoded."""
        return self.before is not None and topics_of(self.before) != self.topics


class Went(Act, frozen=True, kw_only=True):
    """A member left or was removed.

    `heard`: whether the member was heard from at `last_seen_ms`; False: that is the time of a takeover; None: not
    recorded. `longest_silence_ms`: its longest silence since its previous event. `last_connection`: the connection that
    it last used; None: not known.
    """

    member: Member
    how: Departure
    last_connection: LastConnection | None = None
    last_connection_key: ConnectionKey | None = None
    last_seen_ms: int
    longest_silence_ms: int
    heard: bool | None

    @property
    def is_silent(self) -> bool:
        """True if it was removed because the coordinator waited for it in vain."""
        return self.how in SILENT

    @property
    def since_ms(self) -> int:
        """When it was last heard from if it fell silent, else when it left."""
        return self.last_seen_ms if self.is_silent else self.at_ms


class Rejoined(Act, frozen=True, kw_only=True):
    """A member rejoined under the same member id."""

    member: Member
    before: Member | None  # None: not known

    @property
    def changed_topics(self) -> bool:
        """True if it subscribes to other topics than before, as far as they can be decoded."""
        if self.before is None or self.before.protocols is self.member.protocols:
            return False
        return topics_of(self.before) != topics_of(self.member)

    @property
    def changed_protocols(self) -> bool:
        """True if its list of assignors changed."""
        if self.before is None or self.before.protocols is self.member.protocols:
            return False
        return protocols_of(self.before) != protocols_of(self.member)


class Duelled(Act, frozen=True, kw_only=True):
    """A request was fenced because another process has its instance id. `is_duel`: both are alive and alternate."""

    is_duel: bool
    times: int
    event: MemberFenced


class JoinNotLetIn(Act, frozen=True, kw_only=True):
    """A join was refused. `members`: the size of the group; `common`: the protocols that all members support."""

    times: int
    event: JoinRefused
    members: int
    common: tuple[str, ...]


class TopicsUnassigned(Act, frozen=True, kw_only=True):
    """From now on no member is assigned these topics, although members subscribe to them."""

    topics: frozenset[str]


class RebalancedTopic(msgspec.Struct, frozen=True, kw_only=True):
    """A topic for which Muster asked the group to rebalance. `partitions`: their number; 0: not known.

    `partitions_before`: their number when Muster asked before; None: not recorded. `assigned`: the partitions that were
    assigned at that time; None: not known. `is_subscribed`: whether a member subscribes to the topic.
    """

    topic: str
    partitions: int
    partitions_before: int | None
    assigned: range | frozenset[int] | None
    is_subscribed: bool


class AskedFor(Act, frozen=True, kw_only=True):
    """An administrator, a plan of theirs, or Muster by the group's configs asked for a rebalance, or changed the plans.

    `is_upstream`: whether the group's configs leave it to the cluster upstream from now on; None: nothing was set.
    `topics`: the topics for which Muster asked. `configs`: the changes that an administrator made.
    """

    cause: Cause
    is_upstream: bool | None = None
    topics: tuple[RebalancedTopic, ...] = ()
    configs: tuple[ValueChange, ...] = ()


class Called(Act, frozen=True, kw_only=True):
    """A standby got the partitions of a lost member. `lost`: that member; None: its removal is not in the log."""

    member: Member
    lost: MemberId | None


class TookOver(Act, frozen=True, kw_only=True):
    """A called standby has taken over the partitions."""

    member: Member


class Phase(Act, frozen=True, kw_only=True):
    """The group entered another phase. `members`: the group's members at that time."""

    event: AnyGroupEvent
    members: tuple[MemberId, ...]


AnyAct = (
    Came | CameBack | Went | Rejoined | Duelled | JoinNotLetIn | TopicsUnassigned | AskedFor | Called | TookOver | Phase
)


def topics_of(member: Member) -> frozenset[str] | None:
    """Return the topics of the member's first protocol; None if they cannot be decoded."""
    if not member.protocols:
        return frozenset()
    return subscribed_topics(member.protocols[0].metadata)


def topics_text(member: Member) -> str:
    """Return the topics of the member's first protocol as text."""
    topics = topics_of(member)
    return "topics that cannot be read" if topics is None else ", ".join(sorted(topics)) or "no topic"


def members_of(acts: Iterable[Rejoined]) -> tuple[Member, ...]:
    """Return the members that rejoined, once each, as of their last rejoin."""
    return tuple({act.member.member_id: act.member for act in acts}.values())


def protocols_of(member: Member) -> tuple[str, ...]:
    """Return the names of the member's assignors, in its order of preference."""
    return tuple(protocol.name for protocol in member.protocols)
