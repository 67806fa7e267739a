"""The definition of an API, the arguments of its handler, and the errors of malformed requests.

    ProtocolError       a client's bytes are invalid; its connection must be closed
      fault             which of the `Fault`s it was, for the counters

A handler is called as `handle(body, context, service, answer)`. It calls `answer` once, now or later, with the fields
of the response, or `context.superseded` if there will be none. It may return a function that releases what it holds (a
timer) if the client disconnects first. Work on many entries is done in steps (`context.work`), or left to the
response's writer (`Each`).
"""

from collections.abc import Callable, Mapping
from enum import StrEnum, unique
from typing import Any

import msgspec

from muster.coordinator.group.commands import Caller
from muster.coordinator.group.connections import ConnectionRecord
from muster.coordinator.service import Cancel, HeartbeatTicket, Service
from muster.events.ids import GroupId, MemberId
from muster.events.steps import Steps, finished

Fields = Mapping[str, Any]
"""The fields of a response, by kio's names, nested ones as sequences of mappings. Those that a version lacks are
dropped.
"""

Body = Any
"""A request as kio knows it: one class per version. Durations are ints, in ms (see kafka/codec/reading.py)."""

REASON_LENGTH_MAX = 255


@unique
class Fault(StrEnum):
    """The reason why a connection was closed. The values are labels of a metric."""

    NEGATIVE_LENGTH = "negative-length"
    OVERSIZED_FRAME = "oversized-frame"
    OTHER_PROTOCOL = "other-protocol"
    SHORT_FRAME = "short-frame"
    TOO_MANY_ENTRIES = "too-many-entries"
    UNKNOWN_API = "unknown-api"
    UNSUPPORTED_VERSION = "unsupported-version"
    MALFORMED_REQUEST = "malformed-request"
    REFUSED_PRODUCE = "refused-produce"
    UNWRITABLE_RESPONSE = "unwritable-response"
    OVERSIZED_ANSWER = "oversized-answer"
    FAILED_REQUEST = "failed-request"
    BROKER_ANSWER = "broker-answer"


class ProtocolError(Exception):
    """The connection cannot continue. As in Kafka, invalid bytes get no response."""

    def __init__(self, fault: Fault, text: str) -> None:
        super().__init__(text)
        self.fault = fault


KeepTicket = Callable[[GroupId, MemberId, HeartbeatTicket], object]
"""Takes the ticket of an accepted heartbeat, so that the fast path can answer the next one with the same bytes."""


def keep_no_ticket(_group_id: GroupId, _member_id: MemberId, _ticket: HeartbeatTicket) -> None:
    """Do nothing: the default, without a fast path."""


Work = Callable[[Steps[Cancel | None]], Cancel | None]
"""Runs a handler's steps, in slices if they are many. The steps return the handler's cancel function; until they are
done, the function returned here cancels them.
"""


def work_at_once(steps: Steps[Cancel | None]) -> Cancel | None:
    """Run all steps at once: the default."""
    return finished(steps)


def leave_unanswered() -> None:
    """Do nothing: the default, if no connection waits."""


class RequestContext(msgspec.Struct, frozen=True, kw_only=True):
    """The properties of a request that are not in its body. `client_id` is "" when the client sent null, as in Kafka.

    `client_host` is as Java prints it, with a leading slash (M3). `arrived_ms` is monotonic. `superseded` is called
    instead of `answer` when the request is superseded. `member_uuid` is that of the member id to propose for a
    JoinGroup, if it is already known because the request is sent again to another process.
    """

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str
    client_host: str
    principal: str
    arrived_ms: int
    arrived_wall_ms: int
    keep_ticket: KeepTicket = keep_no_ticket
    work: Work = work_at_once
    superseded: Callable[[], None] = leave_unanswered
    member_uuid: str = ""
    connection: ConnectionRecord | None = None
    request_bytes: int = 0

    def caller(self, service: Service) -> Caller:
        """Create the caller of one command; a request that becomes many commands needs one for each."""
        return Caller(
            request_id=service.new_request_id(),
            client_id=self.client_id,
            client_host=self.client_host,
            principal=self.principal,
            api_key=self.api_key,
            api_version=self.api_version,
            arrived_ms=self.arrived_ms,
            arrived_wall_ms=self.arrived_wall_ms,
            connection=None if self.connection is None else self.connection.numbered(service.new_connection_number),
            request_bytes=self.request_bytes,
        )


Answer = Callable[[Fields], None]
Handler = Callable[[Body, RequestContext, Service, Answer], Cancel | None]


class Offered(msgspec.Struct, frozen=True, kw_only=True):
    """An API that ApiVersions lists. `name` is Kafka's name for it; `versions`: those that we handle, without gaps."""

    key: int
    name: str
    versions: range


class Api(Offered, frozen=True, kw_only=True):
    """An API with its handler."""

    handle: Handler


def stated_reason(reason: str | None) -> str | None:
    """Return a client's own reason (KIP-800), cut to 255 characters (R8); None for an empty one."""
    return reason[:REASON_LENGTH_MAX] if reason else None
