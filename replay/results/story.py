"""`muster replay history`: everything that happened to a group, one line each, in log order."""

from enum import StrEnum, unique

import msgspec

from muster.events.causes import Cause
from muster.events.events import (
    AnyEvent,
    AnyRecordedEvent,
    GroupAdvanced,
    GroupConfigured,
    GroupDeleted,
    GroupEvent,
    MemberEvent,
    RegistrationEvent,
)
from muster.events.ids import GroupInstanceId, MemberId
from muster.events.state import NOT_CONFIGURED, Group, GroupConfig, GroupState
from muster.replay.history.items import Broken, Coordinated, Gap, Happened, Item
from muster.replay.history.wording import missing_text
from muster.replay.results.event_texts import event_text
from muster.replay.text.times import Instant, instant


@unique
class LineKind(StrEnum):
    GROUP = "group"
    MEMBER = "member"
    REGISTRATION = "registration"
    CONFIGS = "configs"
    COORDINATOR = "coordinator"
    GAP = "gap"
    BROKEN = "broken"


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """One event, or one marker. `event` is the complete event; its bytes fields are base64 in JSON.

    `generation` and `state` are those after the event; None if they are not known.
    """

    kind: LineKind
    at: Instant
    partition: int
    offset: int
    incarnation: int | None
    seq: int | None
    type: str
    text: str
    cause: Cause | None
    member_id: MemberId | None
    group_instance_id: GroupInstanceId | None
    generation: int | None
    state: GroupState | None
    event: AnyRecordedEvent | None

    @property
    def is_own_record(self) -> bool:
        """True for the group's own record that was written along with members' records: it adds nothing to the lines
        before it.
        """
        return self.type == GroupAdvanced.__name__


class StoryLines:
    """The fold. `group`: its state before the first item, if that is not the first of its history."""

    def __init__(self, group: Group | None = None) -> None:
        self._generation = None if group is None else group.generation_id
        self._state = None if group is None else group.state
        self._configs = _Configs(group)

    def feed(self, item: Item) -> Line:
        """Return the line of the next item."""
        if isinstance(item, Happened) and isinstance(item.event, GroupEvent):
            self._generation, self._state = item.event.group.generation_id, item.event.group.state
        return _line(item, self._generation, self._state, self._configs.before(item))


class _Configs:
    """The group's configs before each item; None if a gap makes them unknown."""

    def __init__(self, group: Group | None) -> None:
        self._config: GroupConfig | None = NOT_CONFIGURED if group is None else group.config
        self._incarnation = -1 if group is None else group.incarnation

    def before(self, item: Item) -> GroupConfig | None:
        """Process the next item; return the configs before it."""
        if isinstance(item, Gap):
            self._incarnation = item.incarnation
        if isinstance(item, Gap | Broken):
            self._config = None
        if not isinstance(item, Happened):
            return self._config
        event = item.event
        if event.incarnation > self._incarnation:
            self._incarnation, self._config = event.incarnation, NOT_CONFIGURED
        config = self._config
        if isinstance(event, GroupConfigured):
            self._config = event.config
        elif isinstance(event, GroupDeleted):
            self._config = NOT_CONFIGURED
        return config


def _line(item: Item, generation: int | None, state: GroupState | None, config: GroupConfig | None) -> Line:
    event = item.event if isinstance(item, Happened | Coordinated) else None
    happened = item.event if isinstance(item, Happened) else None
    member = happened.member if isinstance(happened, MemberEvent) else None
    return Line(
        kind=_kind(item),
        at=instant(item.at_ms if isinstance(item, Happened | Coordinated) else item.position.timestamp_ms),
        partition=item.position.partition,
        offset=item.position.offset,
        incarnation=happened.incarnation if happened else item.incarnation if isinstance(item, Gap) else None,
        seq=happened.seq if happened else None,
        type=type(event or item).__name__,
        text=event_text(event, config) if event is not None else missing_text(item),  # type: ignore[arg-type]
        cause=happened.why.cause if happened else None,
        member_id=member.member_id if member else happened.why.member_id if happened else None,
        group_instance_id=_instance(happened) if happened else None,
        generation=generation,
        state=state,
        event=event,
    )


def _instance(event: AnyEvent) -> GroupInstanceId | None:
    """Return the instance that the event is about: a static member's, or a registered one."""
    if isinstance(event, MemberEvent):
        return event.member.group_instance_id
    return event.registration.group_instance_id if isinstance(event, RegistrationEvent) else event.why.group_instance_id


def _kind(item: Item) -> LineKind:
    if isinstance(item, Happened):
        return _kind_of_event(item.event)
    if isinstance(item, Coordinated):
        return LineKind.COORDINATOR
    return LineKind.GAP if isinstance(item, Gap) else LineKind.BROKEN


def _kind_of_event(event: AnyEvent) -> LineKind:
    if isinstance(event, GroupEvent):
        return LineKind.GROUP
    if isinstance(event, RegistrationEvent):
        return LineKind.REGISTRATION
    return LineKind.CONFIGS if isinstance(event, GroupConfigured) else LineKind.MEMBER
