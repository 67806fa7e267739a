"""The process that clients are connected to: forwards requests to the owners of their groups, and returns responses.

It finds the owner, and handles an owner that is unreachable or has changed. It does not know what a request means.

    owner reachable   the request is forwarded; the owner answers it, or has it relayed, or has the broker asked first
    no owner,         JoinGroup and SyncGroup wait for the next owner, and are sent again, as they are unanswered;
    or unreachable    others wait for a second, then get COORDINATOR_NOT_AVAILABLE, on which clients retry
    superseded        the member has sent a later request: this one is neither answered nor sent to the next owner

Joins and syncs for this process's own groups take the same path, without a connection: another process may own the
group before they are answered.
"""

import itertools
import struct
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Final

import msgspec
from kio.index import load_response_schema
from kio.schema.errors import ErrorCode

from muster.coordinator.cluster import Node
from muster.coordinator.group.outcomes import Superseded
from muster.coordinator.peers.link.peer_messages import (
    Answered,
    Closed,
    Delegated,
    Relay,
    RequestSuperseded,
)
from muster.coordinator.runtime.partition.answer_lease import boot_clock_ms
from muster.coordinator.service import Cancel, Service
from muster.coordinator.sidecar.apis import offset_commit
from muster.coordinator.sidecar.apis.consumer_group_heartbeat import CONSUMER_GROUP_HEARTBEAT
from muster.coordinator.sidecar.apis.membership import RefusingGroups
from muster.coordinator.sidecar.apis.merging import as_fields, ask_broker
from muster.coordinator.sidecar.forwarding.group_apis import (
    MANY_BYTES,
    MOVED,
    NOT_YET,
    OF_MANY_GROUPS,
    OF_ONE_GROUP,
    OfManyGroups,
)
from muster.coordinator.sidecar.forwarding.owners import Outcome, Owners
from muster.coordinator.sidecar.messages.own_requests import read_answer_in_steps, request_bytes_in_steps
from muster.coordinator.sidecar.messages.request_plan import Inspect, RequestPlan, Rewrite
from muster.coordinator.sidecar.messages.request_start import body_at, read_string
from muster.coordinator.sidecar.messages.shadow_commits import OFFSET_COMMIT, TXN_OFFSET_COMMIT
from muster.coordinator.sidecar.relay.client_side import ClientSide
from muster.coordinator.sidecar.relay.intercept import ClientRequest, Handle, SidecarApi
from muster.coordinator.sidecar.relay.limits import handled_bytes_max
from muster.coordinator.wire import heartbeat, join_group
from muster.coordinator.wire.api import Fault, Fields, ProtocolError, work_at_once
from muster.coordinator.wire.messages import HEADER_START_BYTES, KEY_AND_VERSION
from muster.coordinator.wire.registry import APIS, PARKED
from muster.events.ids import GroupId
from muster.events.steps import collected, entries_of

PARKED_TIMEOUT_S: Final = 15.0
"""How long a join or sync waits for the next owner: longer than an ownership session (10 s) plus the answer lease."""
OTHER_TIMEOUT_S: Final = 1.0
RETRY_S: Final = 0.1
RETRY_MAX_S: Final = 1.0
"""A request is sent to the same owner again after RETRY_S; the pause doubles each time, up to this."""
SHORT_ANSWER_BYTES: Final = 4_096
"""Responses with an error are shorter than this."""

HEARTBEAT_FLEXIBLE_FROM: Final = 4

_Parts = dict[int | None, list[Any]]
"""The entries of a request by the node id of the owner of their group; None if it has no owner."""


class Frontend:
    """Forwards requests to the `owners` of their groups (this process may be one of them) and returns the responses.

    A heartbeat is sent again if its response is older than the answer lease, e.g. because this process was suspended:
    the member may have been removed in the meantime, and its client would take the old response for a current one.
    """

    def __init__(
        self, service: Service, owners: Owners, *, answer_lease_ms: int, boot_ms: Callable[[], int] = boot_clock_ms
    ) -> None:
        """`boot_ms`: a clock that counts the time in suspend, like the leases."""
        self._fresh_for_ms = answer_lease_ms
        self._boot_ms = boot_ms
        self._service = service
        self._owners = owners
        self._is_stopping = False

    def stop_waiting(self) -> None:
        """Stop waiting for the next owner: this process stops, and clients reconnect to another one."""
        self._is_stopping = True
        self._owners.drop_all()
        self.ownership_changed()

    def ownership_changed(self) -> None:
        """Make waiting requests look up the owner of their group again."""
        self._owners.changes.notify()

    # ---- which requests are forwarded ----------------------------------------------------------------

    def wrapped(self, api: SidecarApi) -> SidecarApi:
        """Return the API for this process's clients, in which the owner of the group handles the request."""
        if api.key in OF_ONE_GROUP:
            inspect = None if api.inspect is None else partial(self._inspect, api.inspect)
            return msgspec.structs.replace(api, handle=partial(self._handle, api), inspect=inspect)
        many = OF_MANY_GROUPS.get(api.key)
        return api if many is None else msgspec.structs.replace(api, handle=partial(self._handle_many, api, many))

    def _inspect(
        self, inspect: Callable[[int, Rewrite | None], Inspect], api_version: int, rewrite: Rewrite | None
    ) -> Inspect:
        """Plan ConsumerGroupHeartbeat, which is relayed unless another process may have a shadow in the group."""
        planned = inspect(api_version, rewrite)
        forwarded = RequestPlan(is_handled=True, handled_bytes_max=handled_bytes_max(CONSUMER_GROUP_HEARTBEAT))

        def plan(frame: bytes) -> RequestPlan:
            group_id, _ = read_string(frame, body_at(frame, flexible=True), flexible=True)
            is_ours = self._owners.is_own(self._owners.owner_of(GroupId(group_id.decode(errors="replace"))))
            return planned(frame) if is_ours else forwarded

        return plan

    def _handle(self, api: SidecarApi, request: ClientRequest) -> Cancel | None:
        assert api.handle is not None
        node = self._owners.owner_of(request.body.group_id)
        if api.key not in PARKED and self._owners.is_own(node):
            return api.handle(request)
        return request.work(self._forward_until_answered(request))

    def _handle_many(self, api: SidecarApi, many: OfManyGroups, request: ClientRequest) -> Cancel | None:
        assert api.handle is not None
        if len(request.frame) > MANY_BYTES:
            return request.work(self._divide(api, many, request))
        parts = _Parts()
        for each in getattr(request.body, many.asked):
            self._put(parts, many, each)
        return self._handle_parts(api, many, request, parts)

    async def _divide(self, api: SidecarApi, many: OfManyGroups, request: ClientRequest) -> None:
        """Find the owners of a request with too many groups for one slice."""
        pace, parts = request.pace(), _Parts()
        for each in getattr(request.body, many.asked):
            self._put(parts, many, each)
            await pace.worked(entries_of(many.group_of(each) or ""))
        request.in_flight.drops(self._handle_parts(api, many, request, parts))

    def _put(self, parts: _Parts, many: OfManyGroups, entry: Any) -> None:  # noqa: ANN401 -- of any request
        group_id = many.group_of(entry)
        node = self._service.cluster.node if group_id is None else self._owners.owner_of(group_id)
        parts.setdefault(None if node is None else node.node_id, []).append(entry)

    def _handle_parts(
        self, api: SidecarApi, many: OfManyGroups, request: ClientRequest, parts: _Parts
    ) -> Cancel | None:
        assert api.handle is not None
        if parts.keys() <= {self._service.cluster.node.node_id}:
            return api.handle(request)
        return request.work(self._split(request, many, list(parts.values())))

    # ---- one request ---------------------------------------------------------------------------------

    def forward_heartbeat(self, client: ClientSide, frame: bytes, handle: Handle) -> bool:
        """Forward a heartbeat after reading only its group id; the owner decodes it, or recognizes its bytes."""
        api_key, api_version = KEY_AND_VERSION.unpack_from(frame)
        if api_key != heartbeat.KEY:
            return False
        flexible = api_version >= HEARTBEAT_FLEXIBLE_FROM
        try:
            encoded, _ = read_string(frame, body_at(frame, flexible=flexible), flexible=flexible)
            node = self._owners.owner_of(GroupId(encoded.decode()))
        except (IndexError, struct.error, UnicodeDecodeError, ProtocolError):
            return False  # full decoding reports the error
        if node is None or self._owners.is_own(node) or not self._owners.is_reached(node):
            return False
        asked_ms, sent_ms = self._service.monotonic_ms(), self._boot_ms()

        def done(outcome: Outcome) -> None:
            if isinstance(outcome, Delegated) and self._is_fresh(sent_ms):
                self._owners.delegated.keep(node, client, frame, asked_ms, outcome)
            self._heartbeat_done(client, frame, handle, sent_ms, outcome)

        self._owners.send(node, client, frame, done)
        return True

    def _is_fresh(self, sent_ms: int) -> bool:
        """Return whether the response to a request sent at `sent_ms` (boot clock) is within the answer lease."""
        return self._boot_ms() - sent_ms <= self._fresh_for_ms

    def _heartbeat_done(self, client: ClientSide, frame: bytes, handle: Handle, sent_ms: int, outcome: Outcome) -> None:
        match outcome:
            case Answered(payload=payload) | Delegated(payload=payload) if self._is_fresh(sent_ms):
                client.answered([payload])
            case Closed(fault=fault, reason=reason):
                client.answered(ProtocolError(Fault(fault), reason))
            case _ if client.is_open():
                try:
                    handle(client, frame)
                except ProtocolError as error:
                    client.answered(error)

    def _is_finished(self, request: ClientRequest, outcome: Outcome) -> bool:
        """Apply the owner's response; return False if there is none. Raises ProtocolError."""
        match outcome:
            case Answered(payload=payload) | Delegated(payload=payload):
                request.client.answered([payload])
            case Relay():
                request.relay()
            case RequestSuperseded():
                request.client.answered(Superseded())
            case Closed(fault=fault, reason=reason):
                raise ProtocolError(Fault(fault), reason)
            case _:
                return False
        return True

    async def _forward_until_answered(self, request: ClientRequest) -> None:
        """Forward a request of one group until it is answered or times out. Raises ProtocolError."""
        key, group_id = request.context.api_key, request.body.group_id
        member_uuid = self._service.new_uuid() if key == join_group.API.key else ""
        attempts = _Attempts(self, PARKED_TIMEOUT_S if key in PARKED else OTHER_TIMEOUT_S)
        while request.client.is_open():
            seen, node = self._owners.changes.seen, self._owners.owner_of(group_id)
            sent_ms = self._boot_ms()
            outcome = await self._owners.outcome(node, request, request.frame, member_uuid)
            if key == heartbeat.KEY and not self._is_fresh(sent_ms):
                outcome = None
            retried = NOT_YET if attempts.have_failed else MOVED
            if not await self._can_retry(request, outcome, retried) and self._is_finished(request, outcome):
                return
            if not await attempts.is_another_due(node, seen):
                request.answer(_refused(request, request.body, self._service))
                return

    async def wait_for_change(self, node: Node | None, seen: int, *, pause_s: float, within_s: float) -> bool:
        """Wait until another process may be the owner; return False if this process is stopping.

        A reachable owner does not announce when it can answer, so it is asked again after the pause.
        """
        if self._is_stopping:
            return False
        is_there = node is not None and (self._owners.is_own(node) or self._owners.is_linked(node))
        await self._owners.changes.wait(seen, min(pause_s, within_s) if is_there else within_s)
        return True

    async def _can_retry(self, request: ClientRequest, outcome: Outcome, retried: frozenset[ErrorCode]) -> bool:
        """Return whether the response to a join or sync says that another process coordinates the group, or soon
        will.
        """
        key, version = request.context.api_key, request.context.api_version
        if key not in PARKED or not isinstance(outcome, Answered) or outcome.is_brokers:
            return False
        if len(outcome.payload) > SHORT_ANSWER_BYTES:
            return False
        schema: type[Any] = load_response_schema(key, version)
        answer = await request.client.slices.result(read_answer_in_steps(schema, outcome.payload))
        return answer.error_code in retried

    # ---- requests of many groups ---------------------------------------------------------------------

    async def _split(self, request: ClientRequest, many: OfManyGroups, parts: list[list[Any]]) -> None:
        """Send each owner its part, and answer with the merged responses. Raises ProtocolError."""
        slices, context = request.client.slices, request.context
        bodies = [replace(request.body, **{many.asked: tuple(part)}) for part in parts]
        answers = []
        for part, body in zip(parts, bodies, strict=True):  # in sequence, since an owner handles one at a time
            rest = await slices.result(request_bytes_in_steps(body, as_fields(body), context.client_id))
            frame = request.frame[:HEADER_START_BYTES] + rest
            answers.append(await self._part(request, many.group_of(part[0]), body, frame))
        results = [list(answer[many.answered]) for answer in answers]
        request.answer({**answers[0], many.answered: await slices.result(collected(itertools.chain(*results)))})

    async def _part(self, request: ClientRequest, group_id: GroupId | None, body: Any, frame: bytes) -> Fields:  # noqa: ANN401 -- a request of any version
        attempts = _Attempts(self, OTHER_TIMEOUT_S)
        while True:
            seen = self._owners.changes.seen
            node = self._service.cluster.node if group_id is None else self._owners.owner_of(group_id)
            match await self._owners.outcome(node, request, frame, ""):
                case Answered(payload=payload) | Delegated(payload=payload):
                    schema = load_response_schema(request.context.api_key, request.context.api_version)
                    return as_fields(await request.client.slices.result(read_answer_in_steps(schema, payload)))
                case Relay():
                    return as_fields(await ask_broker(request, body))
                case Closed(fault=fault, reason=reason):
                    raise ProtocolError(Fault(fault), reason)
            if not await attempts.is_another_due(node, seen):
                return _refused(request, body, self._service)


class _Attempts:
    """The attempts to have a request answered: when the next one is due, and when to stop.

    The timeout counts from the first attempt that got no response.
    """

    def __init__(self, frontend: Frontend, timeout_s: float) -> None:
        self._frontend = frontend
        self._timeout_s = timeout_s
        self._until_s: float | None = None
        self._pause_s = RETRY_S

    @property
    def have_failed(self) -> bool:
        """True if an attempt got no response."""
        return self._until_s is not None

    async def is_another_due(self, node: Node | None, seen: int) -> bool:
        """Wait until another attempt makes sense; return False after the timeout."""
        now_s = time.monotonic()
        if self._until_s is None:
            self._until_s = now_s + self._timeout_s
        left_s, pause_s = self._until_s - now_s, self._pause_s
        self._pause_s = min(2 * pause_s, RETRY_MAX_S)
        return left_s > 0 and await self._frontend.wait_for_change(node, seen, pause_s=pause_s, within_s=left_s)


def _refused(request: ClientRequest, body: Any, service: Service) -> Fields:  # noqa: ANN401 -- a request of any version
    """Answer with COORDINATOR_NOT_AVAILABLE, in the form of the API."""
    error = ErrorCode.coordinator_not_available
    if request.context.api_key == CONSUMER_GROUP_HEARTBEAT:
        return {
            "error_code": error,
            "error_message": "the process that coordinates the group cannot be reached",
            "member_id": None,
            "member_epoch": 0,
            "heartbeat_interval": 1_000,
            "assignment": None,
        }
    if request.context.api_key in {OFFSET_COMMIT, TXN_OFFSET_COMMIT}:
        return offset_commit.refused(body, error)
    answers: list[Mapping[str, Any]] = []
    refusing = msgspec.structs.replace(service, groups=RefusingGroups(error))
    context = msgspec.structs.replace(request.context, work=work_at_once)
    APIS[request.context.api_key].handle(body, context, refusing, answers.append)
    return answers[0]
