"""Rewrites responses that contain broker addresses, and the API versions that are offered.

    Metadata, FindCoordinator, DescribeCluster     the brokers, by node id
    Produce v10+, ShareFetch, ShareAcknowledge     the new leaders' node endpoints (KIP-951)
    ApiVersions                                    fewer versions, for APIs that must be decoded here

Metadata and DescribeCluster contain the cluster id. If it is another cluster's, e.g. because a broker's address now
belongs to another broker, the connection is closed before the client gets that cluster's addresses.

Fetch is offered up to v15: from v16 on its responses contain addresses, and they are too large to decode for that. A
broker's address is replaced by that of its listener here, found by node id. All other bytes are copied.
"""

import struct
from collections.abc import Callable, Mapping
from typing import Any

from cachetools import FIFOCache
from kio.index import load_response_schema
from kio.schema.errors import ErrorCode
from kio.serial.errors import SerialError

from muster.coordinator.sidecar.messages.produce import PRODUCE
from muster.coordinator.sidecar.messages.request_plan import Rewrite
from muster.coordinator.wire import api_versions
from muster.coordinator.wire.api import Fault, ProtocolError
from muster.events.kafka.codec.primitives import INT16, INT32, tagged_fields_size
from muster.events.kafka.codec.splicing import (
    FieldChange,
    Pieces,
    Splice,
    change_fields,
    change_items,
    cut_struct,
    text_of,
    text_piece,
)
from muster.events.kafka.codec.walk import untagged
from muster.events.steps import Steps

AddressOf = Callable[[int, str, int], tuple[str, int] | None]
"""Returns the host and port of a broker's listener here, or None, given its node id, host and port."""

FETCH, METADATA, FIND_COORDINATOR = 1, 3, 10
DESCRIBE_CLUSTER, SHARE_FETCH, SHARE_ACKNOWLEDGE = 60, 78, 79

_FIRST_WITH_ENDPOINTS = {PRODUCE: 10, SHARE_FETCH: 1, SHARE_ACKNOWLEDGE: 1}
_ENDPOINTS = ("node_endpoints", "node_id")
_ENTRIES: Mapping[int, tuple[str, str]] = {  # the array that holds addresses, and the node id in it
    METADATA: ("brokers", "node_id"),
    FIND_COORDINATOR: ("coordinators", "node_id"),
    DESCRIBE_CLUSTER: ("brokers", "broker_id"),
    PRODUCE: _ENDPOINTS,
    SHARE_FETCH: _ENDPOINTS,
    SHARE_ACKNOWLEDGE: _ENDPOINTS,
}
_MANY_COORDINATORS_FROM = 4
_TELL_CLUSTER = frozenset({METADATA, DESCRIBE_CLUSTER})
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

_ANSWERS_KEPT, _ANSWER_KEPT_BYTES_MAX = 16, 4_096
"""Limits of the cache of ApiVersions responses, for each version: brokers repeat the same few."""

_UNSUPPORTED_VERSION = INT16.pack(ErrorCode.unsupported_version)


class AnswerRewriter:
    """`handled`: the versions offered of handled APIs, by key. `cluster_id`: upstream's; "" if unknown."""

    def __init__(self, address_of: AddressOf, handled: Mapping[int, range], cluster_id: str = "") -> None:
        self._address_of = address_of
        self._cluster_id = cluster_id
        self._offered = {
            **_DECODED,
            **handled,
            **{key: range(last + 1) for key, last in _NOT_ABOVE.items()},
        }

    def versions(self, api_key: int) -> range | None:
        """Return the versions of an API that may be offered; None if the broker decides."""
        return self._offered.get(api_key)

    def of(self, api_key: int, api_version: int) -> Rewrite | None:
        """Return the Rewrite for an API's responses; None if they are not changed."""
        if api_key == api_versions.KEY:
            return self._offers_less(api_version)
        if api_key not in _DECODED or api_version < _FIRST_WITH_ENDPOINTS.get(api_key, 0):
            return None
        response = load_response_schema(api_key, api_version)
        name, node_id = _ENTRIES[api_key]
        change = self._to_listener(node_id, flexible=bool(response.__flexible__))
        if api_key == FIND_COORDINATOR and api_version < _MANY_COORDINATORS_FROM:
            return rewrite_of(response, change_fields(response, "port", change))
        changed = change_items(response, name, change)
        return rewrite_of(response, self._of_this_cluster(response, changed) if api_key in _TELL_CLUSTER else changed)

    def _of_this_cluster(self, response: Any, changed: Splice) -> Splice:  # noqa: ANN401 -- any of kio's
        """Return `changed` preceded by a check that the response is from the upstream cluster."""
        if not self._cluster_id or not any(field.name == "cluster_id" for field in untagged(response)):
            return changed  # Metadata below v2 has no cluster id
        cut, flexible = cut_struct(response, "cluster_id"), bool(response.__flexible__)

        def checked(data: bytes, start: int) -> Steps[bytes]:
            pieces, _ = yield from cut(data, start)
            cluster_id = text_of(pieces["cluster_id"], flexible=flexible)
            if cluster_id and cluster_id != self._cluster_id:
                raise ProtocolError(
                    Fault.BROKER_ANSWER,
                    f"a broker of cluster {cluster_id}; expected cluster {self._cluster_id}",
                )
            return (yield from changed(data, start))

        return checked

    def _to_listener(self, node_id: str, *, flexible: bool) -> FieldChange:
        """Return a change to the broker's listener here. A broker without one is left out, as if it were down."""

        def change(pieces: Pieces) -> Pieces | None:
            node, port = INT32.unpack(pieces[node_id])[0], INT32.unpack(pieces["port"])[0]
            if node < 0:
                return pieces  # no broker
            address = self._address_of(node, text_of(pieces["host"], flexible=flexible), port)
            if address is None:
                return _found_none(pieces, flexible=flexible) if "error_code" in pieces else None
            host, port = address
            return pieces | {"host": text_piece(host, flexible=flexible), "port": INT32.pack(port)}

        return change

    def _offers_less(self, api_version: int) -> Rewrite:
        """Return the Rewrite for ApiVersions (P1). A broker that lacks the version answers in v0 (P3)."""
        in_its_form, in_form_of_v0 = (
            rewrite_of(response, change_items(response, "api_keys", self._offer))
            for response in (load_response_schema(api_versions.KEY, version) for version in (api_version, 0))
        )
        return _kept(
            lambda payload: (in_form_of_v0 if payload.startswith(_UNSUPPORTED_VERSION) else in_its_form)(payload)
        )

    def _offer(self, pieces: Pieces) -> Pieces | None:
        """Limit an API to the versions that can be handled here; None if there are none."""
        api_key, first, last = (INT16.unpack(pieces[name])[0] for name in ("api_key", "min_version", "max_version"))
        ours = self._offered.get(api_key)
        if ours is None:
            return pieces
        first, last = max(first, ours[0]), min(last, ours[-1])
        if first > last:
            return None
        return pieces | {"min_version": INT16.pack(first), "max_version": INT16.pack(last)}


def _kept(rewrite: Rewrite) -> Rewrite:
    """Cache the results of a Rewrite that depends only on the bytes."""
    kept: FIFOCache[bytes, bytes] = FIFOCache(_ANSWERS_KEPT)

    def rewrite_or_recall(payload: bytes) -> Steps[bytes]:
        try:
            return kept[payload]
        except KeyError:
            rewritten = yield from rewrite(payload)
        if len(payload) <= _ANSWER_KEPT_BYTES_MAX:
            kept[payload] = rewritten
        return rewritten

    return rewrite_or_recall


def _found_none(pieces: Pieces, *, flexible: bool) -> Pieces:
    """Return a FindCoordinator result for an unreachable broker, after which the client retries."""
    return pieces | {
        "error_code": INT16.pack(ErrorCode.coordinator_not_available),
        "node_id": INT32.pack(-1),
        "host": text_piece("", flexible=flexible),
        "port": INT32.pack(-1),
    }


def rewrite_of(response: Any, changed: Splice) -> Rewrite:  # noqa: ANN401 -- any of kio's
    """Return a Rewrite that changes the body; `changed` gets its offset. Raises ProtocolError if malformed."""
    flexible = bool(response.__header_schema__.__flexible__)

    def rewrite(payload: bytes) -> Steps[bytes]:
        try:
            start = tagged_fields_size(payload, 0) if flexible else 0
            return payload[:start] + (yield from changed(payload, start))
        except (SerialError, struct.error, IndexError, UnicodeDecodeError) as error:
            raise ProtocolError(
                Fault.BROKER_ANSWER, f"{response.__name__} v{response.__version__} cannot be read: {error}"
            ) from error

    return rewrite
