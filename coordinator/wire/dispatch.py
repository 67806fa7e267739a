"""Dispatches frames to the handlers of their APIs, and encodes the handlers' responses.

Both run in slices (coordinator/load/slices.py), so that other work proceeds while a large request is read or a large
response written.
"""

from collections.abc import Callable, Mapping
from struct import Struct

import msgspec

from muster.coordinator.group.connections import ConnectionRecord
from muster.coordinator.service import Cancel, Service
from muster.coordinator.wire import api_versions
from muster.coordinator.wire.api import Api, Body, Fault, KeepTicket, ProtocolError, RequestContext, keep_no_ticket
from muster.coordinator.wire.in_flight import Answered, InFlightRequest
from muster.coordinator.wire.messages import message

_HEADER_START = Struct(">hhi")  # API key, version, correlation id
_MEANT = {17: "SaslHandshake: no client authenticates here; its security.protocol should be PLAINTEXT"}
"""Hints for clients that use an API that is not offered."""


class ClientAddress(msgspec.Struct, frozen=True, kw_only=True):
    """The client's end of a connection; `client_host` as Java prints it (M3). `connection`: None only in tests."""

    client_host: str
    principal: str
    connection: ConnectionRecord | None = None


def dispatch(
    frame: bytes,
    *,
    apis: Mapping[int, Api],
    service: Service,
    peer: ClientAddress,
    answer: Callable[[Answered], None],
    keep_ticket: KeepTicket = keep_no_ticket,
) -> Cancel | None:
    """Handle one request; `frame` is without its length. `answer` is called now or later; the returned function cancels
    the rest.

    Raises ProtocolError where Kafka closes the connection: for an unknown API or version (except for ApiVersions,
    KIP-511), and for a body that cannot be read or exceeds its limits. Errors that are found later are passed to
    `answer`.
    """
    api_key, api_version, _ = _HEADER_START.unpack_from(frame)
    api = apis.get(api_key)
    if api is None:
        raise ProtocolError(Fault.UNKNOWN_API, _MEANT.get(api_key, f"API key {api_key} is not offered here"))
    if api_version not in api.versions:
        if api_key == api_versions.KEY:
            answer([message(api_key, 0).write(api_versions.unsupported_version())])
            return None
        raise ProtocolError(
            Fault.UNSUPPORTED_VERSION,
            f"{api.name} v{api_version} is not offered here, v{api.versions[0]} to v{api.versions[-1]} are",
        )

    def handle(body: Body, context: RequestContext, in_flight: InFlightRequest) -> Cancel | None:
        return api.handle(body, context, service, in_flight.write)

    return work_on(frame, service=service, peer=peer, answer=answer, keep_ticket=keep_ticket, handle=handle)


def work_on(
    frame: bytes,
    *,
    service: Service,
    peer: ClientAddress,
    answer: Callable[[Answered], None],
    keep_ticket: KeepTicket,
    handle: Callable[[Body, RequestContext, InFlightRequest], Cancel | None],
    member_uuid: str = "",
) -> Cancel:
    """Read a frame of a known API, and call `handle` with its content and the in-flight request. The returned function
    cancels the rest.

    Raises ProtocolError like `dispatch`. `member_uuid`: as in RequestContext.
    """
    api_key, api_version, correlation_id = _HEADER_START.unpack_from(frame)
    form = message(api_key, api_version)
    in_flight = InFlightRequest(form, service.slices, answer)
    arrived_ms, arrived_wall_ms = service.monotonic_ms(), service.wall_ms()
    if peer.connection is not None:
        peer.connection.received_ms = arrived_ms

    def handle_read(read: tuple[str, Body]) -> None:
        client_id, body = read
        context = RequestContext(
            api_key=api_key,
            api_version=api_version,
            correlation_id=correlation_id,
            client_id=client_id,
            client_host=peer.client_host,
            principal=peer.principal,
            arrived_ms=arrived_ms,
            arrived_wall_ms=arrived_wall_ms,
            keep_ticket=keep_ticket,
            work=in_flight.work,
            superseded=in_flight.superseded,
            member_uuid=member_uuid,
            connection=peer.connection,
            request_bytes=len(frame),
        )
        in_flight.drops(handle(body, context, in_flight))

    in_flight.run(form.read(frame), handle_read)
    return in_flight.cancel
