"""FindCoordinator (key 10).

v1 adds the key type, an error message and the throttle time. v3 is flexible. v4 asks for many keys (KIP-699). v6 knows
share groups.

The coordinator of every group is this node, and Metadata names it under the same id. There are no transactions here:
their coordinator is never available. Share groups, and types nobody knows, are an invalid request (FC4). A key that is
named many times is answered once.
"""

from kio.schema.errors import ErrorCode

from muster.coordinator.service import Service
from muster.coordinator.wire.api import Answer, Api, Body, Fields, RequestContext
from muster.events.steps import Each

_GROUP, _TRANSACTION = 0, 1
_NO_NODE = {"node_id": -1, "host": "", "port": -1}


def handle(body: Body, context: RequestContext, service: Service, answer: Answer) -> None:
    found = _coordinator(getattr(body, "key_type", _GROUP), service)
    if context.api_version < 4:
        answer({**found, "error_message": found["error_message"] or "NONE"})  # Kafka's word, in v1 to v3
    else:
        answer({"coordinators": Each(lambda key: {"key": key, **found}, dict.fromkeys(body.coordinator_keys))})


def _coordinator(key_type: int, service: Service) -> Fields:
    if key_type == _GROUP:
        cluster = service.cluster
        node = {"node_id": cluster.node_id, "host": cluster.host, "port": cluster.port}
        return {"error_code": ErrorCode.none, "error_message": "", **node}
    if key_type == _TRANSACTION:
        return {
            "error_code": ErrorCode.coordinator_not_available,
            "error_message": "There is no coordinator of transactions here.",
            **_NO_NODE,
        }
    return {
        "error_code": ErrorCode.invalid_request,
        "error_message": f"There is no coordinator of key type {key_type} here.",
        **_NO_NODE,
    }


API = Api(key=10, name="FindCoordinator", versions=range(7), handle=handle)
