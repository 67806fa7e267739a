"""FindCoordinator (key 10).

v1 adds the key type, an error message and the throttle time. v3 is flexible. v4 takes many keys (KIP-699). v6 adds
share groups.

The coordinator of every group is this node, or, if processes share the partitions of the log, the owner of the group's
partition; Metadata lists it with the same id. There are no transactions here, so the response for a transactional id is
always COORDINATOR_NOT_AVAILABLE. Share groups and unknown types get INVALID_REQUEST (FC4). A key that a request repeats
is answered once.
"""

from kio.schema.errors import ErrorCode

from muster.coordinator.service import Service
from muster.coordinator.wire.api import Answer, Api, Body, Fields, RequestContext
from muster.events.steps import Each

_GROUP, _TRANSACTION = 0, 1
_NO_NODE = {"node_id": -1, "host": "", "port": -1}


def handle(body: Body, context: RequestContext, service: Service, answer: Answer) -> None:
    key_type = getattr(body, "key_type", _GROUP)
    if context.api_version < 4:
        found = _coordinator(body.key, key_type, service)
        answer({**found, "error_message": found["error_message"] or "NONE"})  # as in Kafka, in v1 to v3
    else:

        def found_for(key: str) -> Fields:
            return {"key": key, **_coordinator(key, key_type, service)}

        answer({"coordinators": Each(found_for, dict.fromkeys(body.coordinator_keys))})


def _coordinator(key: str, key_type: int, service: Service) -> Fields:
    if key_type == _GROUP:
        node = service.cluster.coordinator_of(key)
        if node is None:
            return {
                "error_code": ErrorCode.coordinator_not_available,
                "error_message": "The group's event log partition is moving to an owner.",
                **_NO_NODE,
            }
        return {
            "error_code": ErrorCode.none,
            "error_message": "",
            "node_id": node.node_id,
            "host": node.host,
            "port": node.port,
        }
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
