"""A frame on its way to the handler of its API, and the handler's fields on their way back as bytes."""

from collections.abc import Callable, Mapping
from struct import Struct

import msgspec

from coordinator.service import Cancel, Service
from coordinator.wire import api_versions
from coordinator.wire.api import Api, Fault, Fields, KeepTicket, ProtocolError, RequestContext, keep_no_ticket
from coordinator.wire.messages import message

_HEADER_START = Struct(">hhi")  # API key, version, correlation id

Answered = bytes | ProtocolError
"""What follows the correlation id, or why it cannot be written: a reply must not fail in the one who replies."""


class Peer(msgspec.Struct, frozen=True, kw_only=True):
    """Who is at the other end of a connection; `client_host` as Java prints it (M3)."""

    client_host: str
    principal: str


def dispatch(
    frame: bytes,
    *,
    apis: Mapping[int, Api],
    service: Service,
    peer: Peer,
    answer: Callable[[Answered], None],
    keep_ticket: KeepTicket = keep_no_ticket,
) -> Cancel | None:
    """Have one request handled; `frame` is without its length.

    Raises ProtocolError for what Kafka answers by closing the connection: an unknown API or version (but for
    ApiVersions, KIP-511), a body that cannot be read.
    """
    api_key, api_version, correlation_id = _HEADER_START.unpack_from(frame)
    api = apis.get(api_key)
    if api is None:
        raise ProtocolError(Fault.UNKNOWN_API, f"API key {api_key} is not offered here")
    if api_version not in api.versions:
        if api_key == api_versions.KEY:
            answer(message(api_key, 0).write(api_versions.unsupported_version()))
            return None
        raise ProtocolError(
            Fault.UNSUPPORTED_VERSION,
            f"{api.name} v{api_version} is not offered here, v{api.versions[0]} to v{api.versions[-1]} are",
        )
    form = message(api_key, api_version)
    client_id, body = form.read(frame)
    context = RequestContext(
        api_key=api_key,
        api_version=api_version,
        correlation_id=correlation_id,
        client_id=client_id,
        client_host=peer.client_host,
        principal=peer.principal,
        arrived_ms=service.monotonic_ms(),
        arrived_wall_ms=service.wall_ms(),
        keep_ticket=keep_ticket,
    )

    def write(response: Fields) -> None:
        try:
            written = form.write(response)
        except ProtocolError as error:
            answer(error)
        else:
            answer(written)

    return api.handle(body, context, service, write)
