"""Happenings, which start no rebalance: absorbed restarts, changes of the owner, refusals, fences.

They show which rebalances were avoided by static membership, and which clients were refused.
"""

from collections.abc import Iterator, Sequence

from muster.events.causes import REFUSED_WITHOUT_GROUP, TEXTS, Cause
from muster.events.events import (
    AnyGroupEvent,
    AnyMemberEvent,
    CoordinatorElected,
    CoordinatorPaused,
    CoordinatorReady,
    CoordinatorStopped,
    GroupDeleted,
    JoinRefused,
    MemberFenced,
    MemberJoined,
    MemberRejoined,
    MemberRemoved,
    StaticMemberReplaced,
    Why,
)
from muster.events.ownership import OwnershipEndCause
from muster.events.state import Group
from muster.replay.history.items import Coordinated
from muster.replay.rebalances.moves import partitions_of
from muster.replay.rebalances.rebalance import Happening, HappeningKind, MemberRef, actor, ref
from muster.replay.rebalances.takeovers import end_text
from muster.replay.rebalances.wording import cause_text, count_of, error_name, host, process, rearmed_text, several, who
from muster.replay.text.grammar import plural
from muster.replay.text.times import duration, instant


def restart(event: AnyMemberEvent, group: Group) -> Happening:
    """A static member rejoined under a new member id and kept its assignment.

    The log does not show whether it is a new process, or the same one rejoining.
    """
    kept = partitions_of(group, event.member)
    partitions = plural(count_of(kept), "partition") if kept is not None else "assignment"
    text = f"{who(ref(event.member))} rejoined under a new member id and kept its {partitions}"
    if event.member.is_inactive:
        came = f"{who(ref(event.member))} rejoined under a new member id"
        text = f"{came}; it is a {event.member.role.lower()}, without partitions"
    if isinstance(event, StaticMemberReplaced) and event.replaced_client_host != event.member.client_host:
        text += f"; it ran at {host(event.replaced_client_host)} before"
    return Happening(
        kind=HappeningKind.STATIC_RESTART,
        at=instant(event.why.decided_ms),
        text=text,
        seq=event.seq,
        who=ref(event.member),
    )


def inactive_came(event: MemberJoined | MemberRejoined) -> Happening:
    """A learner or a standby was admitted beside the running generation, or rejoined with another subscription."""
    return _of_member(HappeningKind.INACTIVE_MEMBER_CAME, event, cause_text(event.why, [actor(event)]))


def inactive_went(event: MemberRemoved) -> Happening:
    """A learner or a standby left or was removed."""
    text = f"{cause_text(event.why, [actor(event)])}; it was a {event.member.role.lower()} and had no partitions"
    return _of_member(HappeningKind.INACTIVE_MEMBER_WENT, event, text)


def retired_went(event: MemberRemoved, after: Group) -> Happening:
    """A retired member left; the rebalance waits for the others."""
    left = sum(member.retiring for member in after.members.values())
    waits = f"the rebalance waits for {plural(left, 'other')}" if left else "it waits for no other member"
    text = f"{cause_text(event.why, [actor(event)])}; it was retired, and {waits}"
    return _of_member(HappeningKind.RETIRED_MEMBER_WENT, event, text)


def _of_member(kind: HappeningKind, event: AnyMemberEvent, text: str) -> Happening:
    return Happening(kind=kind, at=instant(event.why.decided_ms), text=text, seq=event.seq, who=ref(event.member))


def announced(why: Why, seq: int, text: str) -> Happening:
    """A plan was made or ended."""
    return Happening(kind=HappeningKind.PLANNED, at=instant(why.decided_ms), text=text, seq=seq)


def gathered(joins: Sequence[MemberJoined]) -> Happening:
    """Several joins were delayed and gathered into one rebalance."""
    members = tuple(ref(event.member) for event in joins)
    first_ms = min(event.why.arrived_ms for event in joins)
    if len(members) == 1:
        text = f"the join of {who(members[0])} was held back until the rebalance"
    else:
        text = f"{several(members)} were held back and joined in one rebalance, instead of up to {len(members)}"
    return Happening(
        kind=HappeningKind.JOINS_GATHERED,
        at=instant(first_ms),
        text=text,
        times=len(members),
        seq=joins[0].seq,
        members=members,
    )


def unserved(event: AnyGroupEvent) -> Iterator[Happening]:
    """Yield the happening of an event outside of rebalances: a refusal, a fence, or the end of the group."""
    if isinstance(event, GroupDeleted) and event.why.cause in REFUSED_WITHOUT_GROUP:
        return
    if isinstance(event, GroupDeleted):
        kind, at = HappeningKind.GROUP_DELETED, instant(event.why.decided_ms)
        yield Happening(kind=kind, at=at, text=cause_text(event.why, []), seq=event.seq)
    elif isinstance(event, JoinRefused):
        yield Happening(
            kind=HappeningKind.JOIN_REFUSED,
            at=instant(event.why.decided_ms),
            text=TEXTS[event.why.cause].format(member=_sender(event.why)),
            times=1 + event.suppressed,
            seq=event.seq,
            error=error_name(event.error_code),
            who=_ref(event.why),
        )
    elif isinstance(event, MemberFenced):
        is_duel = event.why.cause is Cause.INSTANCE_DUEL
        yield Happening(
            kind=HappeningKind.INSTANCE_DUEL if is_duel else HappeningKind.MEMBER_FENCED,
            at=instant(event.why.decided_ms),
            text=_duel_text(event) if is_duel else _fence_text(event),
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
    """Name the sender of a request, which may have no member id yet."""
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


def _duel_text(event: MemberFenced) -> str:
    """Describe a duel: the process that had lost the instance id is alive, and has taken it back."""
    why = event.why
    one = f"{host(why.client_host or '')}, client {why.client_id}"
    other = f"{host(event.current_client_host or '')}, client {event.current_client_id}"
    return f"two live processes take the instance id '{why.group_instance_id}' from each other: {one}; {other}"


class CoordinatorChanges:
    """Follows the owner of the partition through its events."""

    def __init__(self) -> None:
        self._owner: str | None = None
        self._stopped = False

    def note(self, item: Coordinated, *, members: int, in_flight: bool) -> Happening | None:
        """Return the change of owner as a happening; None if the group has no members or the change is not complete."""
        event = item.event
        happening = None
        if isinstance(event, CoordinatorReady):
            if members and self._owner is not None:
                happening = self._takeover(event, members, in_flight=in_flight)
        elif isinstance(event, CoordinatorPaused) and members:
            happening = _pause(event)
        if not isinstance(event, CoordinatorElected):  # the elected owner does not serve yet
            self._owner, self._stopped = event.owner, isinstance(event, CoordinatorStopped)
        return happening

    def _takeover(self, event: CoordinatorReady, members: int, *, in_flight: bool) -> Happening:
        successor = "it" if event.owner == self._owner else event.owner
        went_on = "the rebalance continued" if in_flight else f"{plural(members, 'member')} continued"
        return Happening(
            kind=HappeningKind.COORDINATOR_TAKEOVER,
            at=instant(event.ready_ms),
            text=(
                f"the coordinator {self._owner} {self._leaving(event)}; {successor} was ready in"
                f" {duration(event.took_ms)}, and {went_on}"
            ),
        )

    def _leaving(self, event: CoordinatorReady) -> str:
        """Describe how the former owner lost the partition."""
        if self._stopped:
            return "released its partition cleanly"
        end = event.owner_before_end if event.owner_before == self._owner else None
        how = end_text(end)
        is_itself = end is not None and end.cause is OwnershipEndCause.TAKEN_BACK
        if how is not None and not is_itself:
            return how
        if event.owner != self._owner:
            return "ended without a clean shutdown"
        lost = f"lost partition {event.partition} of the event log, which could not be written"
        # host:pid, since in containers every process may be pid 1
        again = " (or it was started again under the same host:pid, as in a container)"
        return lost if is_itself else lost + again


def _pause(event: CoordinatorPaused) -> Happening:
    return Happening(
        kind=HappeningKind.COORDINATOR_PAUSE,
        at=instant(event.paused_ms),
        text=(
            f"the coordinator {event.owner} stalled for at least {duration(event.late_ms)}; no member was blamed, "
            f"{rearmed_text(event)}"
        ),
    )
