"""SaslHandshake and SaslAuthenticate (keys 17 and 36): relayed as they are, and read for the client's principal.

The client authenticates with the broker. Read on the way are the principal, for the event history, once the broker has
accepted it (sasl.py); and that the principal may have changed: cached authorizations are dropped. A client that the
broker refuses is logged.

SaslHandshake is offered from v1 on: after v0 come tokens without a header, which cannot be told from requests.
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
"""Characters of a mechanism's name that are logged: none is longer, but a client may send any."""


def apis(metrics: RelayMetrics) -> tuple[SidecarApi, ...]:
    """The registrations."""
    begin, authenticate = partial(_begin, metrics), partial(_authenticate, metrics)
    return (
        SidecarApi(key=SASL_HANDSHAKE, name="SaslHandshake", versions=range(1, 2), handle=begin),
        SidecarApi(key=SASL_AUTHENTICATE, name="SaslAuthenticate", versions=range(3), handle=authenticate),
    )


def _begin(metrics: RelayMetrics, request: ClientRequest) -> None:
    client, mechanism = _own(request), request.body.mechanism
    client.sasl.begin(mechanism)
    client.relay(rewrite=partial(_begun, metrics, client, request.context.client_id, mechanism[:MECHANISM_CHARS_MAX]))


def _own(request: ClientRequest) -> ClientSide:
    """The client, which is connected to this process: what authenticates it is not forwarded."""
    assert isinstance(request.client, ClientSide)
    return request.client


def _begun(metrics: RelayMetrics, client: ClientSide, client_id: str, mechanism: str, payload: bytes) -> Steps[bytes]:
    """Read the broker's answer and return it unchanged. Raises ProtocolError if it cannot be read."""
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
    client.relay(rewrite=partial(_look, metrics, client, request.context))


def _look(metrics: RelayMetrics, client: ClientSide, context: RequestContext, payload: bytes) -> Steps[bytes]:
    """Read the broker's answer and return it unchanged. Raises ProtocolError if it cannot be read."""
    answer: Any = yield from read_answer_in_steps(load_response_schema(SASL_AUTHENTICATE, context.api_version), payload)
    if answer.error_code is ErrorCode.none:
        client.authenticated(client.sasl.accepted(answer.auth_bytes))
    else:
        metrics.authentications_refused += 1
        reason = f"SASL authentication failed: {answer.error_message or answer.error_code.name.upper()}"
        user, peer = client.sasl.refused(), client.peer.client_host
        client.endpoint.refusals.write(Refusal.CREDENTIALS, peer, user=user, client_id=context.client_id, reason=reason)
    return payload
