"""Producer APIs (Produce, transactions), refused for topics or ids that are reserved for Muster (reserved_names.py).

    Produce (0)                                                  INVALID_TOPIC_EXCEPTION, or a closed connection
    InitProducerId, AddPartitionsToTxn, AddOffsetsToTxn (22, 24, 25), EndTxn (26)
                                                                 TRANSACTIONAL_ID_AUTHORIZATION_FAILED

All others are relayed unchanged: the transactional id is the first field, and nothing after it is read.
AddPartitionsToTxn is offered up to v3, which clients use; v4 is for brokers, and names many producers. TxnOffsetCommit
(28) is handled in any case (offset_commit.py).
"""

from collections.abc import Callable
from functools import partial

from kio.index import load_request_schema
from kio.schema.errors import ErrorCode

from muster.coordinator.sidecar.messages.produce import NOT_FOR_CLIENTS, PRODUCE, plan_produce
from muster.coordinator.sidecar.messages.request_plan import RELAY, Inspect, RequestPlan
from muster.coordinator.sidecar.messages.request_start import body_at, read_string
from muster.coordinator.sidecar.messages.reserved_names import ReservedNames
from muster.coordinator.sidecar.relay.intercept import ClientRequest, SidecarApi
from muster.coordinator.wire.api import Body, Fields
from muster.events.steps import Each

REFUSED_TXN_BYTES_MAX = 65_536
"""Size limit of a request with one of Muster's transactional ids, which no client should send."""

_NO_PRODUCER = {"producer_id": -1, "producer_epoch": -1}
_REFUSAL = {"error_code": ErrorCode.transactional_id_authorization_failed}


def apis(reserved: ReservedNames) -> tuple[SidecarApi, ...]:
    """Return the registrations."""
    return (
        SidecarApi(
            key=PRODUCE,
            name="Produce",
            versions=range(14),
            handle=_refuse_records,
            inspect=lambda api_version, rewrite: partial(
                plan_produce, api_version=api_version, rewrite=rewrite, reserved=reserved
            ),
        ),
        _transactional(22, "InitProducerId", range(7), lambda _: {**_REFUSAL, **_NO_PRODUCER}, reserved),
        _transactional(24, "AddPartitionsToTxn", range(4), _partitions_refused, reserved),
        _transactional(25, "AddOffsetsToTxn", range(5), lambda _: _REFUSAL, reserved),
        _transactional(26, "EndTxn", range(6), lambda _: {**_REFUSAL, **_NO_PRODUCER}, reserved),
    )


def _transactional(
    key: int, name: str, versions: range, refusal: Callable[[Body], Fields], reserved: ReservedNames
) -> SidecarApi:
    def inspect(api_version: int, _rewrite: object) -> Inspect:
        flexible = bool(load_request_schema(key, api_version).__flexible__)

        def by_id(frame: bytes) -> RequestPlan:
            encoded, _ = read_string(frame, body_at(frame, flexible=flexible), flexible=flexible)
            is_reserved = reserved.is_transactional_id(encoded)
            return RequestPlan(is_handled=True, handled_bytes_max=REFUSED_TXN_BYTES_MAX) if is_reserved else RELAY

        return by_id

    def refuse(request: ClientRequest) -> None:
        request.answer(refusal(request.body))

    return SidecarApi(key=key, name=name, versions=versions, handle=refuse, inspect=inspect)


def _refuse_records(request: ClientRequest) -> None:
    """Refuse every partition of the request's single topic."""
    request.answer(
        {
            "responses": [
                {
                    "name": getattr(topic, "name", None),
                    "topic_id": getattr(topic, "topic_id", None),
                    "partition_responses": Each(lambda each: _not_written(each.index), topic.partition_data),
                }
                for topic in request.body.topic_data
            ]
        }
    )


def _not_written(index: int) -> Fields:
    return {
        "index": index,
        "error_code": ErrorCode.invalid_topic_exception,
        "base_offset": -1,
        "log_append_time": -1,
        "record_errors": (),
        "error_message": f"no client may write to this topic: {NOT_FOR_CLIENTS}",
    }


def _partitions_refused(body: Body) -> Fields:
    error = ErrorCode.transactional_id_authorization_failed
    return {
        "results_by_topic_v3_and_below": [
            {
                "name": topic.name,
                "results_by_partition": Each(
                    lambda index: {"partition_index": index, "partition_error_code": error}, topic.partitions
                ),
            }
            for topic in body.v3_and_below_topics
        ]
    }
