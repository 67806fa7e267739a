"""Glances: the few fields of an event that tell which number it has, when it was decided, and where its group stood.

What belongs here: the classes. Decoders for them are made of the same schemas as those of the events (`codec.py`); all
that is not named here is read past, and nothing is built of it. A fold that only needs to know where it is in a history
of millions of events reads it in a third of the time.
"""

import msgspec

from muster.events.causes import Cause
from muster.events.state import GroupState


class WhyGlance(msgspec.Struct, frozen=True, kw_only=True):
    """Some fields of `events.Why`. `decided_ms`: wall clock; `uptime_ms`: the owner's monotonic one."""

    cause: Cause
    decided_ms: int
    uptime_ms: int | None = None


class Glance(msgspec.Struct, frozen=True, kw_only=True):
    """The glance at any event of a group."""

    incarnation: int
    seq: int
    why: WhyGlance


class ImageGlance(msgspec.Struct, frozen=True, kw_only=True):
    """Some fields of `state.GroupImage`: the state after the event, and before the last change."""

    state: GroupState
    previous_state: GroupState
    generation_id: int


class GroupGlance(msgspec.Struct, frozen=True, kw_only=True):
    """The glance at an event on the group's own key, with which a transition ends."""

    incarnation: int
    seq: int
    owner_epoch: int
    group: ImageGlance
    why: WhyGlance
