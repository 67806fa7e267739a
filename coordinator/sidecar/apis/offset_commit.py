"""OffsetCommit and TxnOffsetCommit (keys 8 and 28): checked by the group's rules, then committed upstream.

The offsets stay upstream. Member, instance and generation are checked here, where they are known; then the request goes
to the broker on the client's own connection, with the shadow's identity. So the broker authorizes the client, checks
topics and sizes, and refuses a commit that a newer generation has overtaken.

A TxnOffsetCommit without a member (below v3) is relayed unchanged, since it is always accepted (TO4). The commit of a
simple consumer is checked by the rules: while the group has only a pending member, it is Empty and accepts the commit
(OC8); the broker would not, as the shadow is already in the group.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from kio.schema.errors import ErrorCode
from kio.schema.metadata.v12.request import MetadataRequest, MetadataRequestTopic
from kio.schema.metadata.v12.response import MetadataResponse, MetadataResponseTopic

from muster.coordinator.group.commands import AuthorizeCommit
from muster.coordinator.group.offsets import names_no_member
from muster.coordinator.group.outcomes import AuthorizeCommitOutcome, Outcome
from muster.coordinator.service import Cancel, Service
from muster.coordinator.sidecar.groups.in_flight_commits import InFlightCommits
from muster.coordinator.sidecar.groups.moves import Moves
from muster.coordinator.sidecar.groups.routing import GroupRoute, GroupRouter
from muster.coordinator.sidecar.messages.own_requests import ask
from muster.coordinator.sidecar.messages.reserved_names import ReservedNames
from muster.coordinator.sidecar.messages.shadow_commits import (
    OFFSET_COMMIT,
    TXN_OFFSET_COMMIT,
    hide_shadow_errors,
    with_identity,
)
from muster.coordinator.sidecar.relay.intercept import ClientRequest, SidecarApi
from muster.coordinator.sidecar.relay.metrics import RelayMetrics
from muster.coordinator.upstream.shadows import Shadows, ShadowUnavailable
from muster.coordinator.wire.api import Body, Fields
from muster.coordinator.wire.authorized_operations import READ
from muster.events.ids import GroupId, MemberId
from muster.events.steps import Each, collected

_KNOWS_UNKNOWN_GROUPS_FROM = 9
_NO_GENERATION = -1
_ASKED_AT_ONCE = 1_000
"""Topics in one Metadata request."""


class OffsetCommitApi:
    """Checks commits by the rules, which `service` applies, and relays them."""

    def __init__(
        self,
        service: Service,
        router: GroupRouter,
        moves: Moves,
        shadows: Shadows,
        *,
        in_flight: InFlightCommits,
        reserved: ReservedNames,
        metrics: RelayMetrics,
    ) -> None:
        self._service = service
        self._router = router
        self._moves = moves
        self._shadows = shadows
        self._in_flight = in_flight
        self._reserved = reserved
        self._metrics = metrics

    def apis(self) -> tuple[SidecarApi, ...]:
        """Return the registrations."""
        return (
            SidecarApi(key=OFFSET_COMMIT, name="OffsetCommit", versions=range(2, 11), handle=self.handle),
            SidecarApi(key=TXN_OFFSET_COMMIT, name="TxnOffsetCommit", versions=range(6), handle=self.handle),
        )

    def handle(self, request: ClientRequest) -> Cancel | None:
        if self._reserved.is_transactional_id(getattr(request.body, "transactional_id", "").encode()):
            request.answer(refused(request.body, ErrorCode.transactional_id_authorization_failed))
            return None
        group_id = request.body.group_id
        command = _command(request, self._service)
        route = self._router.route_of(group_id)
        is_brokers = names_no_member(command) and (command.is_transactional or route is not GroupRoute.LOCAL)
        if route is GroupRoute.UPSTREAM or is_brokers:
            if self._shadows.is_leaving(group_id):
                return request.work(self._relay_when_left(request))
            request.relay()
            return None
        authorization = request.client.authorizations.cached(group_id, request.context.arrived_ms)
        if authorization is None or route is GroupRoute.UNDECIDED:
            return request.work(self._ask_first(request, command, route))
        self._judge(request, command, route.refusal(authorization.refusal(READ)))
        return None

    async def _ask_first(self, request: ClientRequest, command: AuthorizeCommit, route: GroupRoute) -> None:
        authorization = await request.client.authorizations.of(command.group_id)
        refusal = route.refusal(authorization.refusal(READ))
        if refusal is ErrorCode.none and route is GroupRoute.UNDECIDED and await self._is_theirs(command.group_id):
            request.relay()
        else:
            self._judge(request, command, refusal)

    async def _is_theirs(self, group_id: GroupId) -> bool:
        """Return whether a group whose partition is not loaded yet has members upstream."""
        try:
            return await self._router.take(group_id, would_fail=lambda: True) is not None
        except ShadowUnavailable:
            return False  # the commit is answered COORDINATOR_LOAD_IN_PROGRESS

    async def _relay_when_left(self, request: ClientRequest) -> None:
        """Relay once the shadow, which is leaving, has left; until then the broker refuses the commit."""
        try:
            async with self._shadows.withdrawn(request.body.group_id):
                request.relay()
        except ShadowUnavailable:
            request.answer(refused(request.body, ErrorCode.coordinator_not_available))

    def _judge(self, request: ClientRequest, command: AuthorizeCommit, refusal: ErrorCode) -> None:
        if refusal is not ErrorCode.none:
            request.answer(refused(request.body, refusal))
            return
        if self._router.route_of(command.group_id) is GroupRoute.MOVING:
            moved = self._moves.answer_commit(request)
            if moved is None:
                request.relay()
            else:
                request.answer(refused(request.body, moved))
            return

        def reply(outcome: Outcome) -> None:
            assert isinstance(outcome, AuthorizeCommitOutcome)
            if outcome.error is not ErrorCode.none:
                if outcome.error is ErrorCode.unknown_member_id:
                    self._moves.note_unknown_member(request)  # the group was released while the request was queued
                request.work(_refuse_what_exists(request, outcome.error))
            elif outcome.generation_id == _NO_GENERATION:
                request.relay()
            elif not self._relay(request, command, outcome.generation_id):
                request.work(self._relay_when_bumped(request, command, outcome.generation_id))

        self._service.groups.submit(command, reply)

    def _relay(self, request: ClientRequest, command: AuthorizeCommit, generation_id: int) -> bool:
        """Relay the commit with the shadow's identity; return False if it has none for this generation."""
        group_id = command.group_id
        identity = (
            None if self._in_flight.is_paused(group_id) else self._shadows.commit_identity(group_id, generation_id)
        )
        if identity is None:
            return False
        self._metrics.commits_relayed += 1
        answered = self._in_flight.track(group_id, request.client.broker_lost)
        context = request.context
        hidden = hide_shadow_errors(
            context.api_key, context.api_version, lambda: self._shadows.heartbeat_soon(group_id)
        )
        request.client.relay(with_identity(request.frame, identity), lambda payload: hidden(answered(payload)))
        return True

    async def _relay_when_bumped(self, request: ClientRequest, command: AuthorizeCommit, generation_id: int) -> None:
        is_bumped = False
        try:
            while not is_bumped or self._in_flight.is_paused(command.group_id):
                await self._in_flight.wait_resumed(command.group_id)
                await self._shadows.wait_bumped(command.group_id, generation_id)
                is_bumped = True
        except (ShadowUnavailable, TimeoutError):
            request.answer(refused(request.body, ErrorCode.coordinator_not_available))
            return
        if not self._relay(request, command, generation_id):  # another generation has begun since
            is_members = command.generation_id >= 0
            error = ErrorCode.illegal_generation if is_members else ErrorCode.unknown_member_id
            request.answer(refused(request.body, error))


def _command(request: ClientRequest, service: Service) -> AuthorizeCommit:
    body, context = request.body, request.context
    is_transactional = context.api_key == TXN_OFFSET_COMMIT
    knows_unknown_groups = not is_transactional and context.api_version >= _KNOWS_UNKNOWN_GROUPS_FROM
    generation = "generation_id" if is_transactional else "generation_id_or_member_epoch"
    return AuthorizeCommit(
        caller=context.caller(service),
        group_id=body.group_id,
        member_id=MemberId(getattr(body, "member_id", "")),
        group_instance_id=getattr(body, "group_instance_id", None),
        generation_id=getattr(body, generation, _NO_GENERATION),
        unknown_group_error=ErrorCode.group_id_not_found if knows_unknown_groups else ErrorCode.illegal_generation,
        is_transactional=is_transactional,
    )


async def _refuse_what_exists(request: ClientRequest, error: ErrorCode) -> None:
    """Answer with the group's error, unless a topic has its own, which takes precedence as in the broker (G4, G6)."""
    slices = request.client.slices
    keys = tuple(dict.fromkeys(await slices.result(collected(map(_key, request.body.topics)))))
    topics: dict[Any, MetadataResponseTopic] = {}
    for first in range(0, len(keys), _ASKED_AT_ONCE):
        question = MetadataRequest(
            topics=tuple(map(_asked, keys[first : first + _ASKED_AT_ONCE])),
            allow_auto_topic_creation=False,
            include_topic_authorized_operations=True,
        )
        answer = await ask(request.client, question, MetadataResponse)
        topics |= {topic.name if isinstance(keys[0], str) else topic.topic_id: topic for topic in answer.topics}
    found = ((key, each.partition_index) for key, topic in topics.items() for each in topic.partitions)
    exist = set(await slices.result(collected(found)))

    def error_of(topic: Body, partition: int) -> ErrorCode:
        key = _key(topic)
        known = topics.get(key)
        if known is None:  # an empty name, or an all-zero id, which no topic has
            return ErrorCode.unknown_topic_or_partition if isinstance(key, str) else ErrorCode.unknown_topic_id
        if known.error_code is not ErrorCode.none:
            return known.error_code
        if not known.topic_authorized_operations & READ:
            return ErrorCode.topic_authorization_failed
        return error if (key, partition) in exist else ErrorCode.unknown_topic_or_partition

    request.answer(_answers(request.body, error_of))


def _key(topic: Body) -> Any:  # noqa: ANN401 -- a topic's name, or its id where names are no longer sent
    return getattr(topic, "name", None) or getattr(topic, "topic_id", "")


def _asked(key: Any) -> MetadataRequestTopic:  # noqa: ANN401 -- as above
    by_name = isinstance(key, str)
    return MetadataRequestTopic(topic_id=None if by_name else key, name=key if by_name else None)


def refused(body: Body, error: ErrorCode) -> Fields:
    """Return the response with this error for each partition."""
    return _answers(body, lambda _topic, _partition: error)


def _answers(body: Body, error_of: Callable[[Body, int], ErrorCode]) -> Fields:
    """Return the response, in the form of both APIs."""

    def partition(topic: Body, asked: Body) -> Fields:
        return {"partition_index": asked.partition_index, "error_code": error_of(topic, asked.partition_index)}

    def topic_of(topic: Body) -> Fields:
        return {
            "name": getattr(topic, "name", None),
            "topic_id": getattr(topic, "topic_id", None),
            "partitions": Each(partial(partition, topic), topic.partitions),
        }

    return {"topics": Each(topic_of, body.topics)}
