"""Facts: a trial in numbers and words, from the recorder's notes.

A member's *own connection* is the one on which it last heartbeated before the act.
"""

from typing import Final

import msgspec

from tests.clients.endings.acts import Watched
from tests.clients.endings.frames import SeenRequest
from tests.clients.endings.given import Act, Family, Way
from tests.clients.endings.logged import disagreements
from tests.clients.endings.recorder import Ended, SeenConnection

MEMBER_ID_REQUIRED: Final = 79
"""Not a refusal, but the first step of a join."""


class Left(msgspec.Struct, frozen=True, kw_only=True):
    """Its LeaveGroup. Times are ms after the act."""

    after_ms: int
    version: int
    reason: str | None
    names_instance: bool
    """True if the request has its instance id."""
    on_own_connection: bool


class End(msgspec.Struct, frozen=True, kw_only=True):
    """The end of its own connection by its side."""

    how: Ended
    after_ms: int
    """After the act."""


class Return(msgspec.Struct, frozen=True, kw_only=True):
    """Its way back into the group."""

    after_ms: int
    """From when the act was undone (or from the act, if it is not undone) to its first accepted heartbeat."""
    joined: bool
    """True for a JoinGroup; otherwise it just continues with heartbeats."""
    refusals: tuple[int, ...] = ()
    """The different error codes that it got before it joined."""
    asked_with_old_id: bool = False
    """True if its first JoinGroup has its former member id."""
    has_old_id: bool = False
    """True if it has its former member id."""
    join_on_own: bool = False
    """True if it joined on the connection on which it had heartbeated."""
    beats_on_own: bool = False
    """True if it heartbeats on that connection again."""
    join_on_old: bool = False
    """True if it joined on any of the connections that it had before the act."""


class Fact(msgspec.Struct, frozen=True, kw_only=True):
    """An act as seen by the coordinator. Times are in ms."""

    family: Family
    act: Act
    is_static: bool
    way: Way
    version: str
    left: Left | None
    end: End | None
    """None: its side did not end it while it was observed."""
    others: tuple[str, ...] = ()
    """How its other connections ended, without duplicates."""
    last_beat_ms: int = 0
    """The last request on its own connection before it ended or was back, relative to the act (negative: before it)."""
    exited_ms: int | None = None
    undone_ms: int | None = None
    """When the act was undone."""
    returned: Return | None = None
    logged: str = ""
    """Muster's own record of the member's end or return: the cause, and how its connection had ended by then."""
    disagreements: tuple[str, ...] = ()
    """Sentences on each difference between that record and the observations."""
    roles: tuple[tuple[str, ...], ...] = ()
    """The requests of each of its connections that was open when the act started."""


def fact_of(watched: Watched, version: str) -> Fact:
    trial, act_ms = watched.trial, watched.act_ms
    own = own_connection(watched)
    living = [
        each
        for each in watched.connections
        if each.opened_ms < act_ms and (each.ended_ms is None or each.ended_ms >= act_ms) and each.requests
    ]
    ended_ms = own.ended_ms if own.ended_ms is not None else watched.until_ms
    silent_until = min(ended_ms, watched.undone_ms or watched.until_ms)
    last_ms = max(each.at_ms for each in own.requests if each.at_ms <= silent_until)
    return Fact(
        family=trial.family,
        act=trial.act,
        is_static=trial.is_static,
        way=trial.way,
        version=version,
        left=_left(watched, own),
        end=None if own.ended is None else End(how=own.ended, after_ms=round(ended_ms - act_ms)),
        others=tuple(sorted({str(each.ended or "open") for each in living if each is not own})),
        last_beat_ms=round(last_ms - act_ms),
        exited_ms=None if watched.exited_ms is None else round(watched.exited_ms - act_ms),
        undone_ms=None if watched.undone_ms is None else round(watched.undone_ms - act_ms),
        logged=_logged(watched),
        disagreements=tuple(disagreements(watched.events, watched.connections, watched.wall_of_ms)),
        returned=_returned(watched, own) if trial.act.returns else None,
        roles=tuple(tuple(sorted(each.apis() - {"ApiVersions", "Metadata"})) for each in living),
    )


def own_connection(watched: Watched) -> SeenConnection:
    """See the module."""
    beats = [
        (request.at_ms, connection)
        for connection in watched.connections
        for request in connection.requests
        if request.api == "Heartbeat" and request.at_ms < watched.act_ms
    ]
    return max(beats, key=lambda each: each[0])[1]


def _left(watched: Watched, own: SeenConnection) -> Left | None:
    for connection in watched.connections:
        for each in connection.requests:
            if each.api == "LeaveGroup" and each.at_ms >= watched.act_ms:
                members = each.body.get("members") or [each.body]
                return Left(
                    after_ms=round(each.at_ms - watched.act_ms),
                    version=each.version,
                    reason=members[0].get("reason"),
                    names_instance=bool(members[0].get("group_instance_id")),
                    on_own_connection=connection is own,
                )
    return None


def _returned(watched: Watched, own: SeenConnection) -> Return | None:
    since_ms = watched.act_ms if watched.undone_ms is None else watched.undone_ms
    requests = sorted(
        ((each, connection) for connection in watched.connections for each in connection.requests),
        key=lambda each: each[0].at_ms,
    )
    before = [each for each, _ in requests if each.api == "Heartbeat" and each.at_ms < watched.act_ms]
    old_id = before[-1].body["member_id"]
    # A delayed notice comes when the act is undone: a stopped process's last heartbeat is answered then.
    after = [(each, on) for each, on in requests if each.at_ms >= watched.act_ms and _is_heard(each, since_ms)]
    joins = [(each, on) for each, on in after if each.api == "JoinGroup"]
    accepted = [(each, on) for each, on in after if each.api == "Heartbeat" and each.error == 0]
    accepted = [(each, on) for each, on in accepted if not joins or each.at_ms > joins[0][0].at_ms]
    if not accepted:
        return None
    beat, beat_on = accepted[0]
    back_ms = round((beat.answered_ms or beat.at_ms) - since_ms)
    if not joins:
        return Return(after_ms=back_ms, joined=False, has_old_id=True, beats_on_own=beat_on is own)
    first, _ = joins[0]
    refused = [each.error for each, _ in after if each.at_ms <= joins[-1][0].at_ms and each.error]
    return Return(
        after_ms=back_ms,
        joined=True,
        refusals=tuple(dict.fromkeys(each for each in refused if each != MEMBER_ID_REQUIRED)),
        asked_with_old_id=first.body["member_id"] == old_id,
        has_old_id=beat.body["member_id"] == old_id,
        join_on_own=joins[-1][1] is own,
        beats_on_own=beat_on is own,
        join_on_old=joins[-1][1].opened_ms < watched.act_ms,
    )


def _logged(watched: Watched) -> str:
    since_ms = watched.act_ms + watched.wall_of_ms
    for event in watched.events:
        if event.decided_ms >= since_ms and event.kind in {"MemberRemoved", "StaticMemberReplaced", "MemberRejoined"}:
            connection = "the same connection" if event.last is None else event.last.end or "open"
            return f"{event.cause}, {connection}"
    return "nothing"


def _is_heard(request: SeenRequest, since_ms: float) -> bool:
    return request.at_ms >= since_ms or (request.answered_ms or 0) >= since_ms
