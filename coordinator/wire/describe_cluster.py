"""DescribeCluster (key 60).

v1 adds the type of endpoint: 1 for brokers, 2 for controllers (KIP-919), which do not exist here. v2 reports which
brokers are fenced.
"""

from kio.schema.errors import ErrorCode

from muster.coordinator.service import Service
from muster.coordinator.wire.api import Answer, Api, Body, RequestContext
from muster.coordinator.wire.authorized_operations import AUTHORIZED_OPERATIONS_OMITTED, CLUSTER_OPERATIONS

_BROKERS, _CONTROLLERS = 1, 2


def handle(body: Body, _context: RequestContext, service: Service, answer: Answer) -> None:
    endpoint_type = getattr(body, "endpoint_type", _BROKERS)
    cluster = service.cluster
    if endpoint_type != _BROKERS:
        mismatched = endpoint_type == _CONTROLLERS
        answer(
            {
                "error_code": (
                    ErrorCode.mismatched_endpoint_type if mismatched else ErrorCode.unsupported_endpoint_type
                ),
                "error_message": f"There are no endpoints of type {endpoint_type} here.",
                "cluster_id": "",
                "brokers": (),
            }
        )
        return
    answer(
        {
            "error_code": ErrorCode.none,
            "endpoint_type": _BROKERS,
            "cluster_id": cluster.cluster_id,
            "controller_id": cluster.controller.node_id,
            "brokers": [
                {"broker_id": each.node_id, "host": each.host, "port": each.port, "rack": None, "is_fenced": False}
                for each in cluster.nodes
            ],
            "cluster_authorized_operations": (
                CLUSTER_OPERATIONS if body.include_cluster_authorized_operations else AUTHORIZED_OPERATIONS_OMITTED
            ),
        }
    )


API = Api(key=60, name="DescribeCluster", versions=range(3), handle=handle)
