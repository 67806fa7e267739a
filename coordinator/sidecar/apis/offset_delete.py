"""OffsetDelete (key 47): the rules decide what may be deleted; the broker, which has the offsets, deletes it.

The broker deletes no offsets of a group with members, unless it knows their subscriptions. So for a group of ours the
rules refuse subscribed topics (86, GROUP_SUBSCRIBED_TO_TOPIC), the shadow is withdrawn, the broker deletes the rest on
the client's own connection, and the shadow joins again. Commits are paused in the meantime, so the broker's response
has a short timeout; anything that it deletes later is not subscribed either. For a group without members the request is
relayed.

Checks are in Kafka's order (G8): the group, READ on each topic (29), its existence (3), then 86. The broker is not
asked to delete subscribed topics; for these, Metadata answers the two checks of the topic.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from kio.schema.errors import ErrorCode
from kio.schema.metadata.v9.request import MetadataRequest, MetadataRequestTopic
from kio.schema.metadata.v9.response import MetadataResponse
from kio.schema.types import TopicName

from muster.coordinator.group.commands import DeleteOffsets
from muster.coordinator.group.outcomes import DeleteOffsetsOutcome
from muster.coordinator.service import Cancel, Service
from muster.coordinator.sidecar.apis.merging import BROKER_TIMEOUT_S, ask_broker, ask_rules
from muster.coordinator.sidecar.groups.in_flight_commits import InFlightCommits
from muster.coordinator.sidecar.groups.routing import GroupRoute, GroupRouter
from muster.coordinator.sidecar.messages.own_requests import BrokerLink, ask
from muster.coordinator.sidecar.relay.intercept import ClientRequest, SidecarApi
from muster.coordinator.upstream.shadows import Shadows, ShadowUnavailable
from muster.coordinator.wire import offset_delete
from muster.coordinator.wire.api import Body, Fields
from muster.coordinator.wire.authorized_operations import DELETE, READ
from muster.events.steps import Each, Steps, collected

Errors = Mapping[tuple[str, int], ErrorCode]
"""Errors by topic and partition."""


class OffsetDeleteApi:
    """Deletes offsets upstream as the rules, which `service` applies, allow it."""

    def __init__(
        self,
        service: Service,
        router: GroupRouter,
        shadows: Shadows,
        in_flight: InFlightCommits,
        *,
        broker_timeout_s: float = BROKER_TIMEOUT_S,
    ) -> None:
        self._service = service
        self._router = router
        self._shadows = shadows
        self._in_flight = in_flight
        self._broker_timeout_s = broker_timeout_s

    def api(self) -> SidecarApi:
        """Return the registration."""
        api = offset_delete.API
        return SidecarApi(key=api.key, name=api.name, versions=api.versions, handle=self.handle)

    def handle(self, request: ClientRequest) -> Cancel | None:
        if self._router.may_be_ours(request.body.group_id):
            return request.work(self._delete(request))
        request.relay()
        return None

    async def _delete(self, request: ClientRequest) -> None:
        body = request.body
        try:
            if self._router.route_of(body.group_id) is not GroupRoute.LOCAL:
                async with self._shadows.withdrawn(body.group_id):  # it has left already, or is just leaving
                    request.relay()
                return
            request.answer(await self._delete_of_ours(request))
        except (ShadowUnavailable, TimeoutError):
            request.answer(_refused(ErrorCode.coordinator_not_available))

    async def _delete_of_ours(self, request: ClientRequest) -> Fields:
        """Delete offsets of a group of ours. Raises ShadowUnavailable, TimeoutError, ProtocolError."""
        body = request.body
        refusal = (await request.client.authorizations.of(body.group_id)).refusal(DELETE)
        if refusal is not ErrorCode.none:
            return _refused(refusal)
        slices = request.client.slices
        named = ((topic.name, each.partition_index) for topic in body.topics for each in topic.partitions)
        partitions = tuple(dict.fromkeys(await slices.result(collected(named))))
        command = DeleteOffsets(
            caller=request.context.caller(self._service), group_id=body.group_id, partitions=partitions
        )
        outcome = await ask_rules(self._service, command)
        assert isinstance(outcome, DeleteOffsetsOutcome)
        if outcome.error is not ErrorCode.none:
            return _refused(outcome.error)
        errors = await _seen_by_broker(request.client, outcome.refused)
        allowed = await slices.result(_without(body, outcome.refused))
        if allowed.topics:
            async with self._in_flight.paused(body.group_id), self._shadows.withdrawn(body.group_id):
                async with asyncio.timeout(self._broker_timeout_s):
                    answer = await ask_broker(request, allowed)
            if answer.error_code is not ErrorCode.none:
                return _refused(answer.error_code)
            by_broker = (
                ((topic.name, each.partition_index), each.error_code)
                for topic in answer.topics
                for each in topic.partitions
            )
            errors.update(await slices.result(collected(by_broker)))
        return _response_fields(body, errors)


def _without(body: Body, refused: Errors) -> Steps[Any]:
    """Return the request without these partitions, and without topics that have none left."""
    left = []
    for topic in body.topics:
        name = topic.name
        kept = (None if (name, each.partition_index) in refused else each for each in topic.partitions)
        partitions = yield from collected(kept)
        if partitions:
            left.append(replace(topic, partitions=tuple(partitions)))
        yield 1
    return replace(body, topics=tuple(left))


async def _seen_by_broker(client: BrokerLink, refused: Errors) -> dict[tuple[str, int], ErrorCode]:
    """Return the errors of refused partitions; an error that the broker reports for the topic takes precedence."""
    names = sorted({topic for topic, _ in refused})
    if not names:
        return {}
    request = MetadataRequest(
        topics=tuple(MetadataRequestTopic(name=TopicName(name)) for name in names),
        allow_auto_topic_creation=False,
        include_cluster_authorized_operations=False,
        include_topic_authorized_operations=True,
    )
    topics = {topic.name: topic for topic in (await ask(client, request, MetadataResponse)).topics}
    found = ((topic.name, each.partition_index) for topic in topics.values() for each in topic.partitions)
    exist = set(await client.slices.result(collected(found)))

    def error(name: str, partition: int, error: ErrorCode) -> ErrorCode:
        topic = topics[TopicName(name)]
        if topic.error_code is ErrorCode.topic_authorization_failed or not topic.topic_authorized_operations & READ:
            return ErrorCode.topic_authorization_failed
        return error if (name, partition) in exist else ErrorCode.unknown_topic_or_partition

    return dict(await client.slices.result(collected((key, error(*key, refused[key])) for key in refused)))


def _refused(error: ErrorCode) -> Fields:
    return {"error_code": error, "topics": []}


def _response_fields(body: Body, errors: Errors) -> Fields:
    def partition(topic: Body, asked: Body) -> Fields:
        error = errors.get((topic.name, asked.partition_index), ErrorCode.none)
        return {"partition_index": asked.partition_index, "error_code": error}

    def topic_of(topic: Body) -> Fields:
        return {"name": topic.name, "partitions": Each(partial(partition, topic), topic.partitions)}

    return {"error_code": ErrorCode.none, "topics": Each(topic_of, body.topics)}
