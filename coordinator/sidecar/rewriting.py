"""Answers that are changed on their way to the client: those that carry addresses of brokers, and the versions offered.

    Metadata, FindCoordinator, DescribeCluster     the brokers, by node id
    Produce v10+, ShareFetch, ShareAcknowledge     the new leaders' node endpoints (KIP-951)
    ApiVersions                                    less, where something must be decoded here

Fetch is offered up to v15: from v16 on its answers carry addresses, and they are too large to be decoded for that. An
address is found by its node id; the client finds the same broker behind it. Everything else of an answer stays.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from struct import Struct
from typing import Any

from kio.index import load_response_schema
from kio.schema.errors import ErrorCode

from coordinator.sidecar.conversation import Rewrite
from coordinator.sidecar.questions import answer_bytes, read_answer
from coordinator.wire import api_versions
from coordinator.wire.api import Fault, ProtocolError

AddressOf = Callable[[int, str, int], tuple[str, int]]
"""Of a broker: from its node id and its own host and port to the host and port of its listener here."""

PRODUCE, FETCH, METADATA, FIND_COORDINATOR, SASL_HANDSHAKE = 0, 1, 3, 10, 17
DESCRIBE_CLUSTER, SHARE_FETCH, SHARE_ACKNOWLEDGE = 60, 78, 79

_FIRST_WITH_ENDPOINTS = {PRODUCE: 10, SHARE_FETCH: 1, SHARE_ACKNOWLEDGE: 1}
_BROKERS = 1
"""The endpoints that DescribeCluster was asked for; the others are controllers', whom no client of ours speaks to."""

_DECODED: Mapping[int, range] = {
    PRODUCE: range(14),
    METADATA: range(14),
    FIND_COORDINATOR: range(7),
    api_versions.KEY: api_versions.VERSIONS,
    DESCRIBE_CLUSTER: range(3),
    SHARE_FETCH: range(1, 3),
    SHARE_ACKNOWLEDGE: range(1, 3),
}
_NOT_ABOVE: Mapping[int, int] = {FETCH: 15}
_NOT_BELOW: Mapping[int, int] = {SASL_HANDSHAKE: 1}  # after v0 come tokens without a header, that nobody can tell apart

_ERROR = Struct(">h")


class Rewriting:
    """`handled` are the versions of what is handled here, by API key: more is not offered of them."""

    def __init__(self, address_of: AddressOf, handled: Mapping[int, range]) -> None:
        self._address_of = address_of
        self._offered = {
            **_DECODED,
            **handled,
            **{key: range(last + 1) for key, last in _NOT_ABOVE.items()},
            **{key: range(first, 2**15) for key, first in _NOT_BELOW.items()},
        }

    def versions(self, api_key: int) -> range | None:
        """What is offered of an API at most; None: whatever the broker does."""
        return self._offered.get(api_key)

    def of(self, api_key: int, api_version: int) -> Rewrite | None:
        """How an answer is rewritten; None when it goes on as it is."""
        if api_key == api_versions.KEY:
            return lambda payload: self._offer_less(payload, api_version)
        if api_key not in _DECODED or api_version < _FIRST_WITH_ENDPOINTS.get(api_key, 0):
            return None
        response = load_response_schema(api_key, api_version)
        change = _CHANGES[api_key]

        def rewrite(payload: bytes) -> bytes:
            answer = read_answer(response, payload)
            changed = change(answer, self._moved)
            return payload if changed is answer else answer_bytes(changed)

        return rewrite

    def _offer_less(self, payload: bytes, api_version: int) -> bytes:
        """P1. A broker that does not know the version answers in the form of v0 (P3)."""
        if len(payload) < _ERROR.size:
            raise ProtocolError(Fault.BROKER_ANSWER, "an ApiVersions answer without an error code")
        not_known = _ERROR.unpack_from(payload)[0] == ErrorCode.unsupported_version
        answer: Any = read_answer(load_response_schema(api_versions.KEY, 0 if not_known else api_version), payload)
        offered = []
        for each in answer.api_keys:
            ours = self._offered.get(each.api_key)
            first = each.min_version if ours is None else max(each.min_version, ours[0])
            last = each.max_version if ours is None else min(each.max_version, ours[-1])
            if first <= last:
                offered.append(
                    replace(each, min_version=type(each.min_version)(first), max_version=type(each.max_version)(last))
                )
        return answer_bytes(replace(answer, api_keys=tuple(offered)))

    def _moved(self, entry: Any, node_id: int) -> Any:  # noqa: ANN401 -- any of kio's that has a host and a port
        """The same broker at its listener here."""
        if node_id < 0:
            return entry  # nobody
        host, port = self._address_of(node_id, entry.host, entry.port)
        return replace(entry, host=host, port=type(entry.port)(port))


Moved = Callable[[Any, int], Any]


def _metadata(answer: Any, moved: Moved) -> Any:  # noqa: ANN401 -- one of kio's, of any version; so below
    return replace(answer, brokers=tuple(moved(broker, broker.node_id) for broker in answer.brokers))


def _find_coordinator(answer: Any, moved: Moved) -> Any:  # noqa: ANN401
    if not hasattr(answer, "coordinators"):
        return moved(answer, answer.node_id)
    return replace(answer, coordinators=tuple(moved(each, each.node_id) for each in answer.coordinators))


def _describe_cluster(answer: Any, moved: Moved) -> Any:  # noqa: ANN401
    if getattr(answer, "endpoint_type", _BROKERS) != _BROKERS:
        return answer
    return replace(answer, brokers=tuple(moved(broker, broker.broker_id) for broker in answer.brokers))


def _endpoints(answer: Any, moved: Moved) -> Any:  # noqa: ANN401
    if not answer.node_endpoints:
        return answer
    return replace(answer, node_endpoints=tuple(moved(each, each.node_id) for each in answer.node_endpoints))


_CHANGES: Mapping[int, Callable[[Any, Moved], Any]] = {
    METADATA: _metadata,
    FIND_COORDINATOR: _find_coordinator,
    DESCRIBE_CLUSTER: _describe_cluster,
    PRODUCE: _endpoints,
    SHARE_FETCH: _endpoints,
    SHARE_ACKNOWLEDGE: _endpoints,
}
