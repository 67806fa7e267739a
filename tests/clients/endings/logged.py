"""Muster's event log of a trial, compared with the recorder's observations.

It reads the log as `muster replay export` writes it, and compares. The recorder is in front of Muster and forwards
each end unchanged, so the two must agree:

* a connection's end, as of the time of the event, is the one observed by then;
* the last request on it is the last one observed;
* events name one connection id if, and only if, their requests came on one connection.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

from muster.events.connection import ConnectionEnd, LastConnection
from tests.clients.endings.frames import READ, SeenRequest
from tests.clients.endings.recorder import Ended, SeenConnection
from tests.forked import run_muster

LATE_MS: Final = 2_000
"""Both observe the same thing, one after the other, on a busy machine."""

ENDS: Final = {Ended.FIN: ConnectionEnd.CLOSED, Ended.RST: ConnectionEnd.RESET}
_LAST: Final = ("last_connection", "replaced_connection")


class LoggedEvent(msgspec.Struct, frozen=True, kw_only=True):
    """An event about a member. Times are in ms of the wall clock."""

    kind: str
    cause: str
    member_id: str
    """The member that last used `last`: for a replaced member, the old one."""
    decided_ms: int
    request_ms: int | None
    """When its request arrived; None if a timer caused it."""
    connection_id: int | None
    """The connection of that request."""
    last: LastConnection | None


def read_log(log: str, group_id: str, folder: Path) -> list[LoggedEvent]:
    """The events about members of this group. Muster may still be writing."""
    export = folder / f"{group_id}.jsonl"
    done = run_muster("replay", "export", str(export), "--group", group_id, "--log", log)
    assert done.returncode == 0, done.stderr
    lines = [msgspec.json.decode(line) for line in export.read_bytes().splitlines()]
    return [_event(line["type"], line["event"]) for line in lines if "member" in line.get("event", {})]


def _event(kind: str, event: dict[str, Any]) -> LoggedEvent:
    why = event["why"]
    last = next((event[name] for name in _LAST if event.get(name)), None)
    return LoggedEvent(
        kind=kind,
        cause=why["cause"],
        member_id=event.get("replaced_member_id") or event["member"]["member_id"],
        decided_ms=why["decided_ms"],
        request_ms=why["arrived_ms"] if why["api_key"] is not None else None,
        connection_id=why["connection_id"],
        last=None if last is None else msgspec.convert(last, LastConnection),
    )


def disagreements(events: list[LoggedEvent], connections: list[SeenConnection], wall_of_ms: float) -> list[str]:
    """Return a sentence for each difference. `wall_of_ms`: the wall clock minus the recorder's clock."""
    return [
        *_other_ends(events, connections, wall_of_ms),
        *_other_numbers(events, connections, wall_of_ms),
    ]


def _other_ends(events: list[LoggedEvent], connections: list[SeenConnection], wall_of_ms: float) -> Iterator[str]:
    for event in events:
        if event.last is None:
            continue
        at_ms = event.decided_ms - wall_of_ms
        seen = _spoken_on(connections, event, wall_of_ms)
        if seen is None:
            yield f"{event.kind}: {event.member_id} was not seen before"
            continue
        # Requests near the event may have come before or after it; other kinds may count, such as a Fetch.
        earliest_ms = max(
            (each.at_ms for each in seen.requests if each.api in READ and each.at_ms < at_ms - LATE_MS), default=0
        )
        latest_ms = max(each.at_ms for each in seen.requests if each.at_ms < at_ms + LATE_MS)
        received_ms = event.last.received_ms - wall_of_ms
        if not earliest_ms - LATE_MS < received_ms < latest_ms + LATE_MS:
            yield f"{event.kind}: the last request on it came {round(received_ms - latest_ms)} ms off"
        if event.last.end not in _possible_ends(seen, at_ms):
            yield f"{event.kind}: its connection is {event.last.end}, and was seen {seen.ended} at {seen.ended_ms}"


def _possible_ends(seen: SeenConnection, at_ms: float) -> set[ConnectionEnd | None]:
    """An end close to the event may have been seen by only one of the two."""
    if seen.server_ended_ms is not None and seen.server_ended_ms <= at_ms:
        return {ConnectionEnd.CLOSED_BY_COORDINATOR}
    if seen.ended is None or seen.ended_ms is None or seen.ended_ms > at_ms + LATE_MS:
        return {None}
    return {ENDS[seen.ended]} | ({None} if seen.ended_ms > at_ms - LATE_MS else set())


def _other_numbers(events: list[LoggedEvent], connections: list[SeenConnection], wall_of_ms: float) -> Iterator[str]:
    numbers: dict[int, int] = {}
    for event in events:
        for number, seen in _named(event, connections, wall_of_ms):
            if numbers.setdefault(number, seen.number) != seen.number:
                yield f"{event.kind}: connection {number} was seen as two"
    if len(set(numbers.values())) < len(numbers):
        yield f"one connection has several numbers: {numbers}"


def _named(
    event: LoggedEvent, connections: list[SeenConnection], wall_of_ms: float
) -> Iterator[tuple[int, SeenConnection]]:
    """The connections that an event names, each with the observed one."""
    spoken = None if event.last is None else _spoken_on(connections, event, wall_of_ms)
    if event.last is not None and spoken is not None:
        yield event.last.connection_id, spoken
    own = _own_request(event, connections, wall_of_ms)
    if event.connection_id is not None and own is not None:
        yield event.connection_id, own[1]


def _own_request(
    event: LoggedEvent, connections: list[SeenConnection], wall_of_ms: float
) -> tuple[SeenRequest, SeenConnection] | None:
    """The request that caused the event, and its connection."""
    if event.request_ms is None:
        return None
    came_ms = event.request_ms - wall_of_ms
    requested = [
        (each, connection)
        for connection in connections
        for each in connection.requests
        if each.api in {"JoinGroup", "SyncGroup", "LeaveGroup"}
    ]
    return min(requested, key=lambda each: abs(each[0].at_ms - came_ms), default=None)


def _spoken_on(connections: list[SeenConnection], event: LoggedEvent, wall_of_ms: float) -> SeenConnection | None:
    """The connection that the event's member last used before. A join that caused the event does not count as before
    it.
    """
    before_ms = event.decided_ms - wall_of_ms
    own = _own_request(event, connections, wall_of_ms)
    spoken = [
        (each.at_ms, connection.number, connection)
        for connection in connections
        for each in connection.requests
        if each.at_ms < before_ms
        and event.member_id in _member_ids(each)
        and not (own is not None and each is own[0] and each.api == "JoinGroup")
    ]
    return max(spoken, key=lambda each: each[:2])[2] if spoken else None


def _member_ids(request: SeenRequest) -> set[str]:
    if request.api == "JoinGroup":
        return {request.body["member_id"], request.answer.get("member_id", "")}
    if request.api == "LeaveGroup":
        return {each["member_id"] for each in request.body.get("members", ())} | {request.body.get("member_id", "")}
    return {request.body.get("member_id", "")}
