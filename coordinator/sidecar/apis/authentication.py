"""SaslHandshake and SaslAuthenticate (keys 17 and 36): relayed unchanged, and read for the client's principal.

The client authenticates with the broker. Once the broker has accepted it, the principal is kept for the event history
(sasl.py), and cached authorizations are dropped, since the principal may have changed. Clients that the broker refuses
are logged.

SaslHandshake is offered from v1 on: after v0, tokens come without a header and cannot be distinguished from requests.
"""

from functools import partial
from typing import Any, Final

from kio.index import load_response_schema
from kio.schema.errors import ErrorCode

from muster.coordinator.sidecar.messages.own_requests import read_answer_in_steps
from muster.coordinator.sidecar.relay.client_side import ClientSide
from muster.coordinator.sidecar.relay.intercept import ClientRequest, SidecarApi
from muster.coordinator.sidecar.relay.limits import SASL_AUTHENTICATE, SASL_HANDSHAKE
from muster.coordinator.sidecar.relay.metrics import RelayMetrics
from muster.coordinator.sidecar.relay.refusals import Refusal
from muster.coordinator.wire.api import RequestContext
from muster.events.steps import Steps

MECHANISM_CHARS_MAX: Final = 40
"""How many characters of a mechanism's name are logged: real names are shorter, but a client may send anything."""


def apis(metrics: RelayMetrics) -> tuple[SidecarApi, ...]:
    """Return the registrations."""
    begin, authenticate = partial(_begin, metrics), partial(_authenticate, metrics)
    return (
        SidecarApi(key=SASL_HANDSHAKE, name="SaslHandshake", versions=range(1, 2), handle=begin),
        SidecarApi(key=SASL_AUTHENTICATE, name="SaslAuthenticate", versions=range(3), handle=authenticate),
    )


def _begin(metrics: RelayMetrics, request: ClientRequest) -> None:
    client, mechanism = _own(request), request.body.mechanism
    client.sasl.begin(mechanism)
    client.relay(
        rewrite=partial(_check_handshake, metrics, client, request.context.client_id, mechanism[:MECHANISM_CHARS_MAX])
    )


def _own(request: ClientRequest) -> ClientSide:
    """Return the client, which is always connected to this process: authentication requests are not forwarded."""
    assert isinstance(request.client, ClientSide)
    return request.client


def _check_handshake(
    metrics: RelayMetrics, client: ClientSide, client_id: str, mechanism: str, payload: bytes
) -> Steps[bytes]:
    """Read the broker's response and return it unchanged. Raises ProtocolError if it cannot be read."""
    answer: Any = yield from read_answer_in_steps(load_response_schema(SASL_HANDSHAKE, 1), payload)
    if answer.error_code is not ErrorCode.none:
        metrics.authentications_refused += 1
        enabled = ", ".join(answer.mechanisms) or "none"
        reason = f"the broker has not enabled SASL mechanism {mechanism!r} at this listener; enabled: {enabled}"
        user, peer = client.sasl.refused(), client.peer.client_host
        client.endpoint.refusals.write(Refusal.MECHANISM, peer, user=user, client_id=client_id, reason=reason)
    return payload


def _authenticate(metrics: RelayMetrics, request: ClientRequest) -> None:
    client = _own(request)
    client.sasl.received(request.body.auth_bytes)
    client.relay(rewrite=partial(_check_authentication, metrics, client, request.context))


def _check_authentication(
    metrics: RelayMetrics, client: ClientSide, context: RequestContext, payload: bytes
) -> Steps[bytes]:
    """Read the broker's response and return it unchanged. Raises ProtocolError if it cannot be read."""
    answer: Any = yield from read_answer_in_steps(load_response_schema(SASL_AUTHENTICATE, context.api_version), payload)
    if answer.error_code is ErrorCode.none:
        client.authenticated(client.sasl.accepted(answer.auth_bytes))
    else:
        metrics.authentications_refused += 1
        reason = f"SASL authentication failed: {answer.error_message or answer.error_code.name.upper()}"
        user, peer = client.sasl.refused(), client.peer.client_host
        client.endpoint.refusals.write(Refusal.CREDENTIALS, peer, user=user, client_id=context.client_id, reason=reason)
    return payload
