"""`muster replay history`: everything that happened to a group, a line each, in the order of the log."""

from enum import StrEnum, unique

import msgspec

from events.causes import Cause
from events.events import AnyRecordedEvent, GroupEvent, MemberEvent
from events.ids import GroupId, GroupInstanceId, MemberId
from events.state import GroupState
from replay.event_texts import event_text
from replay.history import Coordinated, Gap, Happened, History, Item
from replay.times import Instant, instant
from replay.wording import missing_text


@unique
class LineKind(StrEnum):
    GROUP = "group"
    MEMBER = "member"
    COORDINATOR = "coordinator"
    GAP = "gap"
    BROKEN = "broken"


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """One event, or one marker. `event` is the event itself, whole; bytes in it are base64 in JSON.

    `generation` and `state` are those after the event; None where they are not known.
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


class Story(msgspec.Struct, frozen=True, kw_only=True):
    group_id: GroupId
    log: str
    lines: tuple[Line, ...]


def story(history: History) -> Story:
    """A line for each item of the history."""
    lines: list[Line] = []
    generation: int | None = None
    state: GroupState | None = None
    for item in history.items:
        if isinstance(item, Happened) and isinstance(item.event, GroupEvent):
            generation, state = item.event.group.generation_id, item.event.group.state
        lines.append(_line(item, generation, state))
    return Story(group_id=history.group_id, log=history.log, lines=tuple(lines))


def _line(item: Item, generation: int | None, state: GroupState | None) -> Line:
    event = item.event if isinstance(item, Happened | Coordinated) else None
    happened = item.event if isinstance(item, Happened) else None
    member = happened.member if isinstance(happened, MemberEvent) else None
    return Line(
        kind=_kind(item),
        at=instant(item.at_ms if isinstance(item, Happened | Coordinated) else item.place.timestamp_ms),
        partition=item.place.partition,
        offset=item.place.offset,
        incarnation=happened.incarnation if happened else item.incarnation if isinstance(item, Gap) else None,
        seq=happened.seq if happened else None,
        type=type(event or item).__name__,
        text=event_text(event) if event is not None else missing_text(item),  # type: ignore[arg-type]
        cause=happened.why.cause if happened else None,
        member_id=member.member_id if member else happened.why.member_id if happened else None,
        group_instance_id=member.group_instance_id if member else happened.why.group_instance_id if happened else None,
        generation=generation,
        state=state,
        event=event,
    )


def _kind(item: Item) -> LineKind:
    if isinstance(item, Happened):
        return LineKind.GROUP if isinstance(item.event, GroupEvent) else LineKind.MEMBER
    if isinstance(item, Coordinated):
        return LineKind.COORDINATOR
    return LineKind.GAP if isinstance(item, Gap) else LineKind.BROKEN
