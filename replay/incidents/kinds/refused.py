"""Consumers that were refused and are not in the group: their protocols are inconsistent with the group's, or the
request was not allowed.

Refusals by a full group are of kind `capacity`, which names refused clients with the same functions.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Final

from muster.coordinator.group.turn import REFUSALS_PER_WINDOW
from muster.events.causes import Cause
from muster.events.events import Why
from muster.events.ids import MemberId
from muster.replay.incidents.episode.acts import JoinNotLetIn
from muster.replay.incidents.grade import Grade
from muster.replay.incidents.incident import Statement
from muster.replay.incidents.kinds.kind import EpisodeView, IncidentClaim, Kind
from muster.replay.rebalances.rebalance import MemberRef
from muster.replay.rebalances.wording import host
from muster.replay.text.grammar import few, plural
from muster.replay.text.times import duration, instant, setting

KIND = Kind(
    "refused",
    "Consumers were refused and are not in the group: no protocol in common with it, another protocol type, a session"
    " timeout that is not allowed, metadata that is too large.",
    "the consumers that were refused",
)

CLIENTS_TOLD_MAX: Final = 20
"""How many refused clients get a statement each; the others are counted."""

_Client = tuple[str, str, str]
"""A refused client: its instance id, client id and host; '' for those that it did not send."""

_LINE: Final = "the line 'join refused' in the coordinator's log"
_BOUNDS: Final = "group.min.session.timeout.ms and group.max.session.timeout.ms"
_OFFER_UNKNOWN: Final = "what was offered is not recorded"
_CAUSES = frozenset({Cause.PROTOCOL_MISMATCH, Cause.SESSION_TIMEOUT_REFUSED, Cause.METADATA_TOO_LARGE})


def find(view: EpisodeView) -> Iterator[IncidentClaim]:
    """Find refusals; clients that were refused for the same reason are one incident."""
    same: defaultdict[tuple[str, str], list[JoinNotLetIn]] = defaultdict(list)
    for act in view.free(JoinNotLetIn):
        if act.why.cause in _CAUSES:
            same[_what_does_not_fit(act)].append(act)
    for (what, way_out), acts in same.items():
        yield IncidentClaim(
            kind=KIND,
            acts=(),  # it is not the cause of a rebalance during which a client was refused
            culprits=clients(acts),
            grade=Grade.RECORDED,
            headline=f"{named(acts)} {refused_text(acts)}: {'it' if len(_by_client(acts)) == 1 else 'they'} {what}",
            chain=tuple(statements(acts)),
            advice=(way_out,),
            at_ms=acts[0].at_ms,
            until_ms=acts[-1].at_ms,
        )


def _what_does_not_fit(act: JoinNotLetIn) -> tuple[str, str]:
    """Return a description of what does not fit, and the advice."""
    asked = act.event
    if act.why.cause is Cause.SESSION_TIMEOUT_REFUSED:
        timeout = "" if asked.session_timeout_ms is None else f" of {setting(asked.session_timeout_ms)}"
        return (
            f"asked for a session timeout{timeout}, which is outside of {_BOUNDS}",
            f"set session.timeout.ms of these consumers to a value between the two, which {_LINE} names",
        )
    if act.why.cause is Cause.METADATA_TOO_LARGE:
        return (
            "sent metadata (subscription, protocols, user data) that is larger than --member-metadata-max-bytes",
            "subscribe fewer topics, or raise --member-metadata-max-bytes",
        )
    if not act.members or asked.protocol_type == "":
        return (
            "offered no protocol that a group can be formed with",
            "check the partition.assignment.strategy of these consumers",
        )
    return _another_type(act) or _no_common_protocol(act)


def _another_type(act: JoinNotLetIn) -> tuple[str, str] | None:
    asked_type, has_type = act.event.protocol_type, act.event.group.protocol_type
    if asked_type is None or asked_type == has_type:
        return None
    return (
        f"asked for the protocol type {asked_type}, and the group is of type {has_type}",
        f"the group id is taken by clients of type {has_type}: give these a group.id of their own",
    )


def _no_common_protocol(act: JoinNotLetIn) -> tuple[str, str]:
    common = " or ".join(act.common) or act.event.group.protocol_name or "the group's assignor"
    way_out = f"add {common} to partition.assignment.strategy of these consumers"
    if act.event.protocol_type is None:  # below format level 6
        return (
            f"had no protocol in common with the group, whose members all have {common}; {_OFFER_UNKNOWN}",
            f"{way_out}; or, if they are no consumers, give them a group.id of their own",
        )
    offered = " and ".join(act.event.offered_protocols) or "nothing"
    return f"offered {offered}, and all members of the group have {common}", way_out


# ---- statements about refused clients, also for a full group -----------------------------------------------------


def refused_text(acts: Sequence[JoinNotLetIn]) -> str:
    """'was refused 12 times in 58 s'.

    Up to ten refusals a minute are logged one by one. A client's first refusal in the next minute has the number of its
    suppressed ones, so those of the last minute may not be counted.
    """
    times, took_ms = sum(act.times for act in acts), acts[-1].at_ms - acts[0].at_ms
    were = "was" if len(_by_client(acts)) == 1 else "were"
    if times == 1:
        return f"{were} refused"
    at_least = "at least " if len(acts) >= REFUSALS_PER_WINDOW else ""
    return f"{were} refused {at_least}{plural(times, 'time')} in {duration(took_ms)}"


def named(acts: Sequence[JoinNotLetIn]) -> str:
    """Name the first few refused clients, and count the others."""
    return few([_name(client) for client in _by_client(acts)])


def clients(acts: Sequence[JoinNotLetIn]) -> tuple[MemberRef, ...]:
    """Return the refused clients, once each."""
    return tuple(_ref(of_client[0].why) for of_client in _by_client(acts).values())


def statements(acts: Sequence[JoinNotLetIn]) -> Iterator[Statement]:
    """Yield a statement for each refused client: how often, and when it was first refused."""
    by_client = list(_by_client(acts).items())
    for client, of_client in by_client[:CLIENTS_TOLD_MAX]:
        times = sum(act.times for act in of_client)
        how_often = f" {plural(times, 'time')}" if times > 1 else ""
        yield Statement(
            text=f"{_name(client)} was refused{how_often}",
            grade=Grade.RECORDED,
            at=instant(of_client[0].at_ms),
            seqs=tuple(dict.fromkeys((of_client[0].seq, of_client[-1].seq))),
        )
    if len(by_client) > CLIENTS_TOLD_MAX:
        left_out = by_client[CLIENTS_TOLD_MAX:]
        yield Statement(
            text=f"{plural(len(left_out), 'other client')} were refused, too",
            grade=Grade.RECORDED,
            at=instant(left_out[0][1][0].at_ms),
            seqs=(left_out[0][1][0].seq, left_out[-1][1][-1].seq),
        )


def _by_client(acts: Sequence[JoinNotLetIn]) -> dict[_Client, list[JoinNotLetIn]]:
    found: defaultdict[_Client, list[JoinNotLetIn]] = defaultdict(list)
    for act in acts:
        why = act.why
        found[why.group_instance_id or "", why.client_id or "", why.client_host or ""].append(act)
    return found


def _name(client: _Client) -> str:
    instance, client_id, client_host = client
    return f"'{instance or client_id}' ({host(client_host)})"


def _ref(why: Why) -> MemberRef:
    return MemberRef(
        member_id=why.member_id or MemberId(""),
        group_instance_id=why.group_instance_id,
        client_id=why.client_id or "",
        client_host=why.client_host or "",
    )
