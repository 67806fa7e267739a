"""Produce (key 0): refused.

Offered from v3 on, as in Kafka 4. v9 is flexible. v13 names topics by id.

A declared topic holds no data, so every partition is answered POLICY_VIOLATION, which no producer retries. The API is
offered nevertheless because librdkafka checks for it: without Produce v3 it assumes a broker older than 0.11, whose
Fetch it then refuses to use, and its consumers look for another broker in an endless busy loop.

The log names each address once a minute. If a producer wants no response (`acks=0`), its connection is closed instead,
as in Kafka.
"""

import structlog
from kio.schema.errors import ErrorCode

from muster.coordinator.cluster import Cluster
from muster.coordinator.service import Service
from muster.coordinator.wire.api import Answer, Api, Body, Fault, Fields, ProtocolError, RequestContext
from muster.events.steps import Each

_REFUSED = "topics declared with --topic hold no data: clients can only subscribe to them"


log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)


def handle(body: Body, context: RequestContext, service: Service, answer: Answer) -> None:
    if body.acks == 0:
        raise ProtocolError(Fault.REFUSED_PRODUCE, f"records were produced with acks=0: {_REFUSED}")
    log.warning(
        "records refused: declared topics hold no data",
        peer=context.client_host,
        client_id=context.client_id,
        way_out="produce to the brokers; a sidecar (--upstream) relays produced records",
    )
    answer({"responses": Each(lambda topic: _topic(topic, service.cluster), body.topic_data)})


def _topic(topic: Body, cluster: Cluster) -> Fields:
    name, unknown = cluster.name_and_error(getattr(topic, "name", None), getattr(topic, "topic_id", None))
    return {
        "name": name,
        "topic_id": getattr(topic, "topic_id", None),
        "partition_responses": Each(lambda asked: _partition(name, asked, cluster, unknown), topic.partition_data),
    }


def _partition(name: str, asked: Body, cluster: Cluster, unknown: ErrorCode) -> Fields:
    exists = cluster.has_partition(name, asked.index)
    return {
        "index": asked.index,
        "error_code": ErrorCode.policy_violation if exists else unknown,
        "base_offset": -1,
        "log_append_time": -1,
        "record_errors": (),
        "error_message": _REFUSED if exists else None,
    }


API = Api(key=0, name="Produce", versions=range(3, 14), handle=handle)
