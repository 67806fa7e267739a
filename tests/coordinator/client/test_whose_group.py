"""The client first detects whether a group is coordinated by Muster, a broker, or a sidecar that does not have it."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
from kio.schema.errors import ErrorCode

from muster.coordinator.client.coordinator_link import AdminError, NotForGroup, NotMuster, Refused
from muster.coordinator.client.group_admin import GroupAdmin
from muster.coordinator.client.group_moves import count_movers, describe_with_coordinator, try_move
from muster.coordinator.group.commands import AnyRequest, ConfigOperation, DescribeGroup
from muster.coordinator.group.configs import COORDINATOR, MUSTER, UPSTREAM
from muster.coordinator.group.outcomes import DescribeGroupOutcome, Outcome
from muster.coordinator.service import Service
from muster.coordinator.wire import describe_configs, incremental_alter_configs
from muster.coordinator.wire.api import Answer, Body, RequestContext
from muster.coordinator.wire.registry import APIS
from muster.events.state import GroupState
from tests.coordinator.client.test_admin import DONE, administered, altered, altering
from tests.coordinator.running_server import Running

ASKED = [(COORDINATOR, ConfigOperation.SET, MUSTER)], True


class Other:
    """A server that describes none of Muster's configs: a broker, or a sidecar that does not have the group.

    `asked`: the changes of each request as (name, operation, value), and their `validate_only`.
    """

    def __init__(self, server: Running, error: ErrorCode) -> None:
        self.asked: list[tuple[list[tuple[str, int, str | None]], bool]] = []
        self._error = error
        handles = ((describe_configs.API, self._described), (incremental_alter_configs.API, self._altered))
        server.server._apis = {**APIS, **{api.key: msgspec.structs.replace(api, handle=to) for api, to in handles}}

    def _described(self, body: Body, _context: RequestContext, _service: Service, answer: Answer) -> None:
        answer({"results": [{**_about(body), "error_code": 0, "configs": ()}]})

    def _altered(self, body: Body, _context: RequestContext, _service: Service, answer: Answer) -> None:
        configs = [(each.name, each.config_operation, each.value) for each in body.resources[0].configs]
        self.asked.append((configs, body.validate_only))
        answer({"responses": [{**_about(body), "error_code": self._error.value}]})


def _about(body: Body) -> dict[str, Any]:
    (resource,) = body.resources
    found = {"resource_type": resource.resource_type, "resource_name": resource.resource_name}
    return {"error_message": None, **found}


@asynccontextmanager
async def beside(error: ErrorCode) -> AsyncIterator[tuple[GroupAdmin, Other]]:
    """An administrator, and the server that it is connected to, which returns this outcome for changes."""
    async with administered(altering(DONE)) as (admin, server):
        yield admin, Other(server, error)


async def test_muster_is_recognized_by_its_configs() -> None:
    async with administered(altering(DONE)) as (admin, server):
        await admin.check_is_muster("orders")
        assert altered(server) == []


@pytest.mark.parametrize(
    ("error", "raised", "told"),
    [
        (ErrorCode.invalid_config, NotMuster, "is a Kafka broker, not Muster: name the sidecar"),
        (
            ErrorCode.group_authorization_failed,
            NotMuster,
            r"is a Kafka broker, not Muster, or a sidecar that does not handle group orders \(--groups\): name",
        ),
        (ErrorCode.none, NotForGroup, "group orders: INVALID_REQUEST: "),
    ],
    ids=["a broker", "either", "a sidecar"],
)
async def test_the_other_side_is_detected_by_a_change_without_effect(
    error: ErrorCode, raised: type[AdminError], told: str
) -> None:
    """A validate-only change: a broker does not know the config; a sidecar answers for every group."""
    async with beside(error) as (admin, other):
        with pytest.raises(raised, match=told):
            await admin.check_is_muster("orders")
        assert other.asked == [ASKED]


@pytest.mark.parametrize(
    ("error", "call"),
    [
        (ErrorCode.invalid_config, lambda admin: admin.set_target_group_size("orders", 3)),
        (ErrorCode.invalid_config, lambda admin: describe_with_coordinator(admin, "orders")),
        (ErrorCode.none, lambda admin: admin.promote_all_learners("orders")),
    ],
    ids=["a config is set", "configs are described", "a config is deleted"],
)
async def test_another_side_is_named_for_any_request(
    error: ErrorCode, call: Callable[[GroupAdmin], Awaitable[Any]]
) -> None:
    """A broker refuses unknown configs, except that it accepts a deletion."""
    async with beside(error) as (admin, other):
        with pytest.raises((NotMuster, NotForGroup)):
            await call(admin)
        assert other.asked[-1] == ASKED


async def test_a_move_is_tried_without_being_made() -> None:
    async with beside(ErrorCode.none) as (admin, other):
        await try_move(admin, "orders", UPSTREAM)
        assert other.asked == [([(COORDINATOR, ConfigOperation.SET, UPSTREAM)], True)]


@pytest.mark.parametrize("error", [ErrorCode.group_id_not_found, ErrorCode.group_authorization_failed])
async def test_an_unknown_group_has_no_moving_members(error: ErrorCode) -> None:
    """That is different from a group which may not be described."""
    otherwise = altering(DONE)

    def outcome(command: AnyRequest) -> Outcome | None:
        if isinstance(command, DescribeGroup):
            return DescribeGroupOutcome(error=error, state=GroupState.DEAD)
        return otherwise(command)

    async with administered(outcome) as (admin, _):
        if error is ErrorCode.group_id_not_found:
            assert await count_movers(admin, "orders", MUSTER) is None
        else:
            with pytest.raises(Refused, match="lacks the ACL Allow DESCRIBE on GROUP orders"):
                await count_movers(admin, "orders", MUSTER)
