"""ConsumerGroupHeartbeat (key 68) from a client of the newer protocol (KIP-848) in a group that Muster coordinates.

While the group has classic members here, it has a shadow upstream, so the broker answers GROUP_ID_NOT_FOUND (not a
consumer group), which is fatal to clients. But the group just cannot be joined *yet*, so the response is changed:

    member epoch   response                         the client
    0 (joins)      COORDINATOR_NOT_AVAILABLE        retries; delayed by a second, since it would retry at once
    above 0        UNKNOWN_MEMBER_ID                gives up its partitions, and joins again
    below 0        the broker's                     has left

After the last classic member has left, the shadow leaves too, and the next relayed heartbeat converts the group.
Nothing else of the protocol is changed. A log line says who waits, because clients retry silently.
"""

import asyncio
from collections.abc import Callable
from functools import cache, partial
from struct import Struct
from typing import Final

import structlog
from kio.index import load_response_schema
from kio.schema.errors import ErrorCode

from muster.coordinator.log_throttle import NamesThrottle
from muster.coordinator.service import Cancel
from muster.coordinator.sidecar.messages.request_plan import RELAY, Inspect, RequestPlan, Rewrite
from muster.coordinator.sidecar.messages.request_start import body_at, client_id_of, read_string
from muster.coordinator.sidecar.messages.rewriting import rewrite_of
from muster.coordinator.sidecar.relay.intercept import ClientRequest, SidecarApi
from muster.coordinator.sidecar.relay.limits import DELAY_MS
from muster.coordinator.sidecar.relay.metrics import RelayMetrics
from muster.coordinator.wire.messages import HEADER_START_BYTES
from muster.events.ids import GroupId
from muster.events.kafka.codec.splicing import Pieces, change_fields, text_piece
from muster.events.steps import Steps

log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)

CONSUMER_GROUP_HEARTBEAT: Final = 68

_INT16, _INT32 = Struct(">h"), Struct(">i")
_NOT_A_CONSUMER_GROUP = _INT16.pack(ErrorCode.group_id_not_found)
_REASON = (
    "the group has members of the classic protocol, which Muster coordinates: it can be joined after the last of "
    "them has left, or after the group is released to the cluster (muster release)"
)


def api(is_shadowed: Callable[[GroupId], bool], metrics: RelayMetrics, monotonic_ms: Callable[[], int]) -> SidecarApi:
    """Return the registration. `is_shadowed`: our shadow is in the group upstream, or is joining or leaving."""
    throttle = NamesThrottle(monotonic_ms)

    def change_if_shadowed(group_id: GroupId, client_id: str, change: Rewrite, payload: bytes) -> Steps[bytes]:
        changed = (yield from change(payload)) if is_shadowed(group_id) else payload
        if changed != payload:
            metrics.consumer_group_heartbeats_deferred += 1
            _log_deferred(throttle, group_id, client_id)
        return changed

    def inspect(api_version: int, _rewrite: object) -> Inspect:
        return lambda frame: _plan(frame, api_version, change_if_shadowed)

    def handle(request: ClientRequest) -> Cancel | None:
        """Handle the request of another process's client, which is connected there."""
        plan = _plan(request.frame, request.context.api_version, change_if_shadowed)
        if plan.rewrite is None:
            request.relay()
            return None
        return request.work(_ask_and_change(request, plan.rewrite, delays_changed=plan.delays_changed))

    return SidecarApi(
        key=CONSUMER_GROUP_HEARTBEAT, name="ConsumerGroupHeartbeat", versions=range(2), inspect=inspect, handle=handle
    )


def _log_deferred(throttle: NamesThrottle, group_id: GroupId, client_id: str) -> None:
    suppressed = throttle.due("deferred", group_id)
    if suppressed is not None:
        log.warning(
            "join refused for now: the group has classic members, and this consumer has group.protocol=consumer",
            group_id=group_id,
            client_id=client_id,
            way_out="set group.protocol=classic for it, or stop the classic members; it joins when none is left",
            others_since=suppressed,
        )


async def _ask_and_change(request: ClientRequest, rewrite: Rewrite, *, delays_changed: bool) -> None:
    client, context = request.client, request.context
    payload = await client.ask(context.api_key, context.api_version, request.frame[HEADER_START_BYTES:])
    changed = await client.slices.result(rewrite(payload))
    if delays_changed and changed != payload:
        await asyncio.sleep(DELAY_MS / 1000)
    client.answered([changed])


def _plan(
    frame: bytes, api_version: int, change_if_shadowed: Callable[[GroupId, str, Rewrite, bytes], Steps[bytes]]
) -> RequestPlan:
    """Plan the request by its group and member epoch; whether its response is changed depends on the broker's error."""
    encoded, at = read_string(frame, body_at(frame, flexible=True), flexible=True)
    _, at = read_string(frame, at, flexible=True)  # the member id
    (member_epoch,) = _INT32.unpack_from(frame, at)
    if member_epoch < 0:
        return RELAY
    group_id = GroupId(encoded.decode(errors="replace"))
    error = ErrorCode.coordinator_not_available if member_epoch == 0 else ErrorCode.unknown_member_id
    change, client_id = _put_off(api_version, error), client_id_of(frame)
    return RequestPlan(
        rewrite=partial(change_if_shadowed, group_id, client_id, change), delays_changed=member_epoch == 0
    )


@cache
def _put_off(api_version: int, error: ErrorCode) -> Rewrite:
    response = load_response_schema(CONSUMER_GROUP_HEARTBEAT, api_version)
    instead = {"error_code": _INT16.pack(error), "error_message": text_piece(_REASON, flexible=True)}

    def change(pieces: Pieces) -> Pieces:
        return pieces | instead if pieces["error_code"] == _NOT_A_CONSUMER_GROUP else pieces

    return rewrite_of(response, change_fields(response, "error_message", change))
