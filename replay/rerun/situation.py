"""The input of a reconstruction, and the parts that all requests have."""

from collections.abc import Sequence
from operator import attrgetter

import msgspec

from muster.coordinator.group.commands import Caller
from muster.coordinator.group.soft_state import Session, SoftState
from muster.events.events import AnyEvent, GroupEvent, Why
from muster.events.ids import GroupId, MemberId
from muster.events.state import Group

PHANTOM = MemberId("an id that was handed out")
"""Stands for a pending member id, which the log does not have unless its owner joined."""

PATIENCE_MS = 45_000


class Situation(msgspec.Struct, kw_only=True):
    """The input of a reconstruction: the next recorded events, the group before them, and the soft state to set up.

    `joins_were_held`: the members that join when a rebalance starts had been delayed until then; else they arrived just
    then.
    """

    events: Sequence[AnyEvent]
    group: Group | None
    soft: SoftState
    joins_were_held: bool = True

    @property
    def event(self) -> AnyEvent:
        return self.events[0]

    @property
    def why(self) -> Why:
        return self.events[0].why

    @property
    def group_id(self) -> GroupId:
        return self.events[0].group_id

    def until_group_event(self) -> list[AnyEvent]:
        """Return the events up to and including the next one on the group's own key."""
        for position, event in enumerate(self.events):
            if isinstance(event, GroupEvent):
                return list(self.events[: position + 1])
        return list(self.events)


def caller(why: Why) -> Caller:
    """Return the sender of the request."""
    return Caller(
        request_id=0,
        client_id=why.client_id or "",
        client_host=why.client_host or "",
        principal=why.principal or "",
        api_key=why.api_key if why.api_key is not None else -1,
        api_version=why.api_version or 0,
        arrived_ms=why.arrived_ms,
        arrived_wall_ms=why.arrived_ms,
    )


def session_of(why: Why) -> Session:
    return Session(timeout_ms=PATIENCE_MS, deadline_ms=why.decided_ms + PATIENCE_MS, last_seen_ms=why.decided_ms)


_LEAVE_GROUP = 13


def is_leave(why: Why) -> bool:
    return why.api_key == _LEAVE_GROUP


def is_same_request(one: Why, other: Why) -> bool:
    return _REQUEST(one) == _REQUEST(other)


_REQUEST = attrgetter("arrived_ms", "decided_ms", "api_key", "client_id", "client_host")
