"""Commits and deletions of offsets on their way to the broker: what they wait for, and how they end."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from kio.index import load_request_schema
from kio.schema.errors import ErrorCode

from muster.coordinator.group.commands import AnyRequest, DeleteGroup, DeleteOffsets
from muster.coordinator.group.outcomes import AuthorizeCommitOutcome, DeleteGroupOutcome, DeleteOffsetsOutcome, Outcome
from muster.coordinator.sidecar.apis.delete_groups import DeleteGroupsApi
from muster.coordinator.sidecar.apis.offset_commit import OffsetCommitApi
from muster.coordinator.sidecar.apis.offset_delete import OffsetDeleteApi
from muster.coordinator.sidecar.groups.in_flight_commits import InFlightCommits
from muster.coordinator.sidecar.groups.routing import GroupRouter
from muster.coordinator.sidecar.messages.reserved_names import ReservedNames
from muster.coordinator.sidecar.relay.intercept import SidecarApi
from muster.coordinator.upstream.shadows import CommitIdentity, ShadowName
from muster.events.ids import GroupId
from tests.coordinator.kio_client import filled
from tests.coordinator.sidecar.groups.test_routing import Upstream, router
from tests.coordinator.sidecar.relaying import Client, Relay, relaying
from tests.coordinator.sidecar.scripted_broker import (
    ReceivedRequest,
    ScriptedBroker,
    WithheldResponses,
    asking,
    read_response,
    response,
    scripted_broker,
)
from tests.waiting import until

METADATA, OFFSET_COMMIT, DELETE_GROUPS, OFFSET_DELETE = 3, 8, 42, 47
GROUP = GroupId("orders-group")
ACCEPTED = AuthorizeCommitOutcome(error=ErrorCode.none, generation_id=5)
REFUSED = AuthorizeCommitOutcome(error=ErrorCode.unknown_member_id)


class SteadyShadows:
    """Every group has a shadow, which leaves and returns at once. `steps` and `doubted` have its calls."""

    name = ShadowName.of("log")

    def __init__(self) -> None:
        self.is_owned = True
        self.steps: list[str] = []
        self.doubted: list[GroupId] = []

    def owns(self, _group_id: GroupId) -> bool:
        return self.is_owned

    def is_leaving(self, _group_id: GroupId) -> bool:
        return False

    def commit_identity(self, _group_id: GroupId, _generation_id: int) -> CommitIdentity:
        return CommitIdentity(member_id="muster-log-4b1c", generation_id=77, group_instance_id="muster-log")

    async def wait_bumped(self, _group_id: GroupId, _generation_id: int) -> None:
        return

    def heartbeat_soon(self, group_id: GroupId) -> None:
        self.doubted.append(group_id)

    @asynccontextmanager
    async def withdrawn(self, _group_id: GroupId) -> AsyncIterator[None]:
        self.steps.append("out")
        try:
            yield
        finally:
            self.steps.append("in")


def decides(command: AnyRequest) -> Outcome:
    """All operations are allowed."""
    if isinstance(command, DeleteGroup):
        return DeleteGroupOutcome(error=ErrorCode.none)
    return DeleteOffsetsOutcome(error=ErrorCode.none) if isinstance(command, DeleteOffsets) else ACCEPTED


class Stage:
    """A relay with the handlers under test. Waits without a response have no limit."""

    def __init__(self, reserved: ReservedNames | None = None) -> None:
        self._reserved = reserved or ReservedNames(None)
        self.shadows: Any = SteadyShadows()
        self.in_flight = InFlightCommits(resume_timeout_s=0)
        self.router: GroupRouter | None = None

    def apis(self, relay: Relay) -> Iterable[SidecarApi]:
        relay.groups.outcome = decides
        common = relay.service, self.router or relay.router
        commits = OffsetCommitApi(
            *common,
            relay.moves,
            self.shadows,
            in_flight=self.in_flight,
            reserved=self._reserved,
            metrics=relay.relayed,
        )
        offsets = OffsetDeleteApi(*common, self.shadows, self.in_flight, broker_timeout_s=0)
        groups = DeleteGroupsApi(*common, self.shadows, broker_timeout_s=0)
        return (*commits.apis(), offsets.api(), groups.api())


@asynccontextmanager
async def staged(router: GroupRouter | None = None) -> AsyncIterator[tuple[Stage, ScriptedBroker, Relay, Client]]:
    """A broker, a relay in front of it, and a client of the relay."""
    stage = Stage()
    stage.router = router
    async with scripted_broker() as broker, relaying({1: broker}, more=stage.apis) as relay:
        yield stage, broker, relay, await relay.connect(1)


def commit(*partitions: int) -> bytes:
    offsets = [{"partition_index": each, "committed_offset": 1, "committed_metadata": None} for each in partitions]
    body = {"group_id": GROUP, "generation_id_or_member_epoch": 5, "member_id": "m", "group_instance_id": None}
    topics = [{"name": "orders", "partitions": offsets}]
    return asking(filled(load_request_schema(OFFSET_COMMIT, 9), {**body, "topics": topics}))


def delete_offsets() -> bytes:
    topics = [{"name": "orders", "partitions": [{"partition_index": 0}]}]
    return asking(filled(load_request_schema(OFFSET_DELETE, 0), {"group_id": GROUP, "topics": topics}))


def committed(payload: bytes) -> list[ErrorCode]:
    """The errors of a commit's only topic."""
    (topic,) = read_response(OFFSET_COMMIT, 9, payload).topics
    return [each.error_code for each in topic.partitions]


def answering(broker: ScriptedBroker, *errors: ErrorCode) -> None:
    """Have the broker answer commits with these errors, one for each partition."""

    def script(requested: ReceivedRequest) -> None:
        if requested.api_key == OFFSET_COMMIT:
            partitions = [{"partition_index": at, "error_code": error} for at, error in enumerate(errors)]
            requested.tell(response(OFFSET_COMMIT, 9, topics=[{"name": "orders", "partitions": partitions}]))
        else:
            broker.usual(requested)

    broker.script = script


def at_work(api_key: int) -> "list[asyncio.Task[Any]]":
    """Running handlers of this API."""
    return [task for task in asyncio.all_tasks() if task.get_name() == f"request-{api_key}"]


# ---- broker errors about the shadow ------------------------------------------------------------------


async def test_errors_about_the_shadow_make_the_client_retry() -> None:
    """The shadow is checked."""
    async with staged() as (stage, broker, _, client):
        answering(broker, ErrorCode.unknown_member_id, ErrorCode.fenced_instance_id, ErrorCode.illegal_generation)
        again = ErrorCode.coordinator_load_in_progress
        assert committed(await client.ask(commit(0, 1, 2))) == [again, again, again]
        assert stage.shadows.doubted == [GROUP]
        answering(broker, ErrorCode.none)
        assert committed(await client.ask(commit(0))) == [ErrorCode.none]
        assert stage.shadows.doubted == [GROUP]


async def test_a_commit_for_a_topic_id_of_zeros_is_refused() -> None:
    """It is no topic's id, so the broker is not asked."""
    async with staged() as (_, _, relay, client):
        relay.groups.outcome = lambda _: REFUSED
        partition = {"partition_index": 0, "committed_offset": 7, "committed_metadata": None}
        body = {
            "group_id": GROUP,
            "generation_id_or_member_epoch": 1,
            "member_id": "m",
            "topics": [{"topic_id": None, "partitions": [partition]}],
        }
        response = await client.ask(asking(filled(load_request_schema(OFFSET_COMMIT, 10), body)))
        answer = read_response(OFFSET_COMMIT, 10, response)
        assert answer.topics[0].partitions[0].error_code is ErrorCode.unknown_topic_id


async def test_before_the_log_is_read_a_commit_goes_to_the_broker_if_others_have_the_group() -> None:
    """The log may be unavailable for long, and such a group is not ours; for any other its owner has to be asked."""
    loading = AuthorizeCommitOutcome(error=ErrorCode.coordinator_load_in_progress)
    async with staged(router(Upstream(), is_loaded=False)) as (_, broker, relay, client):
        relay.groups.outcome = lambda _: loading
        answering(broker, ErrorCode.none)
        assert committed(await client.ask(commit(0))) == [ErrorCode.none]
        assert not relay.groups.commands
    async with staged(router(Upstream(nobody=True), is_loaded=False)) as (_, broker, relay, client):
        relay.groups.outcome = lambda _: loading
        held = WithheldResponses(broker, METADATA)
        client.send(commit(0))
        await until(lambda: held.asked)  # which topics exist: each gets the error
        assert relay.groups.commands


async def test_a_commit_during_a_takeover_is_answered_as_loading() -> None:
    """Upstream is not asked whose group it is, as the log will soon show it."""
    async with staged(router(Upstream(), is_loaded=False, is_loaded_soon=True)) as (_, _, relay, client):
        assert committed(await client.ask(commit(0))) == [ErrorCode.coordinator_load_in_progress]
        assert not relay.groups.commands


# ---- clients and brokers that disconnect -------------------------------------------------------------


async def test_a_refusal_that_queries_the_broker_first_ends_with_it() -> None:
    """Otherwise it would wait for ever."""
    async with staged() as (_, broker, relay, client):
        relay.groups.outcome = lambda _: REFUSED
        held = WithheldResponses(broker, METADATA)
        client.send(commit(0))
        await until(lambda: held.asked)
        (working,) = at_work(OFFSET_COMMIT)
        held.asked[0].connection.hang_up()
        await until(working.done)
        assert working.cancelled()
        assert await client.rest() == b""


async def test_a_request_after_the_broker_is_lost_ends_at_once() -> None:
    """The rules had not decided before."""
    async with staged() as (_, broker, relay, client):
        relay.groups.outcome = lambda _: None
        client.send(commit(0))
        await until(lambda: relay.groups.parked)
        broker.connections[0].hang_up()
        assert await client.rest() == b""
        await until(lambda: not relay.listening.connections)
        relay.groups.release(REFUSED)
        (working,) = at_work(OFFSET_COMMIT)
        await until(working.done)
        assert working.cancelled()


# ---- limits --------------------------------------------------------------------------------------------


async def test_a_broker_that_deletes_no_offsets_does_not_keep_the_shadow_out() -> None:
    """The group's commits continue, and a response that comes too late is dropped."""
    async with staged() as (stage, broker, relay, client):
        held = WithheldResponses(broker, OFFSET_DELETE)
        reply = read_response(OFFSET_DELETE, 0, await client.ask(delete_offsets()))
        assert reply.error_code is ErrorCode.coordinator_not_available
        assert stage.shadows.steps == ["out", "in"]
        other = await relay.connect(1)
        answering(broker, ErrorCode.none)
        assert committed(await other.ask(commit(0))) == [ErrorCode.none]
        client.send(commit(0))
        held.asked[0].tell(response(OFFSET_DELETE, 0, error_code=ErrorCode.non_empty_group, topics=[]))
        assert committed((await client.answer())[1]) == [ErrorCode.none]


async def test_a_broker_that_deletes_no_groups_does_not_keep_their_shadows_out() -> None:
    """No client could join meanwhile."""
    async with staged() as (stage, broker, _, client):
        stage.shadows.is_owned = False
        WithheldResponses(broker, DELETE_GROUPS)
        body = filled(load_request_schema(DELETE_GROUPS, 2), {"groups_names": (GROUP,)})
        response = read_response(DELETE_GROUPS, 2, await client.ask(asking(body)))
        assert [each.error_code for each in response.results] == [ErrorCode.coordinator_not_available]
        assert stage.shadows.steps == ["out", "in"]


@pytest.mark.parametrize("is_let_go", [True, False])
async def test_a_commit_is_not_held_back_for_ever(is_let_go: bool) -> None:
    """The client retries."""
    async with staged() as (stage, broker, _, client):
        answering(broker, ErrorCode.none)
        async with stage.in_flight.paused(GROUP):
            if not is_let_go:
                assert committed(await client.ask(commit(0))) == [ErrorCode.coordinator_not_available]
        assert committed(await client.ask(commit(0))) == [ErrorCode.none]
