"""What started no rebalance: restarts that were absorbed, coordinators that came and went, refusals, fences.

That is how a team proves what static membership saved it, and sees who knocked in vain.
"""

from collections.abc import Iterator

from events.causes import TEXTS
from events.events import (
    AnyGroupEvent,
    AnyMemberEvent,
    CoordinatorElected,
    CoordinatorPaused,
    CoordinatorReady,
    CoordinatorStopped,
    JoinRefused,
    MemberFenced,
    StaticMemberReplaced,
    Why,
)
from events.state import Group
from replay.history import Coordinated
from replay.moves import partitions_of
from replay.rebalance import Incident, IncidentKind, MemberRef, ref
from replay.times import duration, instant
from replay.wording import count_of, error_name, host, plural, process, who


def restart(event: AnyMemberEvent, group: Group) -> Incident:
    """A static member came back under a new member id, and kept what it had."""
    kept = partitions_of(group, event.member)
    partitions = plural(count_of(kept), "partition") if kept is not None else "assignment"
    text = f"{who(ref(event.member))} restarted and kept its {partitions}"
    if isinstance(event, StaticMemberReplaced) and event.replaced_client_host != event.member.client_host:
        text += f"; it ran at {host(event.replaced_client_host)} before"
    return Incident(
        kind=IncidentKind.STATIC_RESTART,
        at=instant(event.why.decided_ms),
        text=text,
        seq=event.seq,
        who=ref(event.member),
    )


def unserved(event: AnyGroupEvent) -> Iterator[Incident]:
    """The refusal that the event is, if it is one."""
    if isinstance(event, JoinRefused):
        yield Incident(
            kind=IncidentKind.JOIN_REFUSED,
            at=instant(event.why.decided_ms),
            text=TEXTS[event.why.cause].format(member=_sender(event.why)),
            times=1 + event.suppressed,
            seq=event.seq,
            error=error_name(event.error_code),
            who=_ref(event.why),
        )
    elif isinstance(event, MemberFenced):
        yield Incident(
            kind=IncidentKind.MEMBER_FENCED,
            at=instant(event.why.decided_ms),
            text=_fence_text(event),
            times=1 + event.suppressed,
            seq=event.seq,
            error=error_name(event.error_code),
            who=_ref(event.why),
        )


def _ref(why: Why) -> MemberRef:
    return MemberRef(
        member_id=why.member_id or "",  # type: ignore[arg-type]
        group_instance_id=why.group_instance_id,
        client_id=why.client_id or "",
        client_host=why.client_host or "",
    )


def _sender(why: Why) -> str:
    """Who asked: it may have no member id yet."""
    sender = _ref(why)
    if why.group_instance_id is None and not why.member_id:
        return f"a new member ({process(sender)})"
    return who(sender)


def _fence_text(event: MemberFenced) -> str:
    text = f"{_sender(event.why)} was fenced"
    if event.current_member_id is None:
        return text
    current = f"{host(event.current_client_host or '')}, client {event.current_client_id}"
    return f"{text}: its instance id belongs to another process now ({current})"


class Coordinators:
    """Who coordinates the partition, followed through its events."""

    def __init__(self) -> None:
        self._owner: str | None = None
        self._stopped = False

    def note(self, item: Coordinated, *, members: int, in_flight: bool) -> Incident | None:
        """What a group with so many members lived through; None if it has none, or nothing is to be told (yet)."""
        event = item.event
        incident = None
        if isinstance(event, CoordinatorReady):
            if members and self._owner is not None:
                incident = self._takeover(event, members, in_flight=in_flight)
            self._owner, self._stopped = event.owner, False
        elif isinstance(event, CoordinatorStopped):
            self._stopped = True
        elif isinstance(event, CoordinatorPaused) and members:
            incident = _pause(event)
        elif isinstance(event, CoordinatorElected):
            self._owner = self._owner or event.owner
        return incident

    def _takeover(self, event: CoordinatorReady, members: int, *, in_flight: bool) -> Incident:
        leaving = "stopped in good order" if self._stopped else "was gone without notice"
        went_on = "the rebalance went on" if in_flight else f"{plural(members, 'member')} went on"
        return Incident(
            kind=IncidentKind.COORDINATOR_TAKEOVER,
            at=instant(event.ready_ms),
            text=(
                f"the coordinator {self._owner} {leaving}; {event.owner} was ready in {duration(event.took_ms)}, "
                f"and {went_on}"
            ),
        )


def _pause(event: CoordinatorPaused) -> Incident:
    return Incident(
        kind=IncidentKind.COORDINATOR_PAUSE,
        at=instant(event.paused_ms),
        text=(
            f"the coordinator {event.owner} stood still for {duration(event.late_ms)}; nobody was blamed, "
            f"all sessions were re-armed in full"
        ),
    )
