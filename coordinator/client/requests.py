"""The requests that `GroupAdmin` sends to groups' coordinators, with errors in responses raised as exceptions."""

from collections.abc import Iterable
from contextlib import suppress
from types import TracebackType
from typing import Self

import msgspec
from kio.schema.describe_configs.v4.request import DescribeConfigsRequest, DescribeConfigsResource
from kio.schema.describe_configs.v4.response import DescribeConfigsResponse, DescribeConfigsResult
from kio.schema.describe_groups.v6.request import DescribeGroupsRequest
from kio.schema.describe_groups.v6.response import DescribedGroup, DescribeGroupsResponse
from kio.schema.errors import ErrorCode
from kio.schema.incremental_alter_configs.v1.request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kio.schema.incremental_alter_configs.v1.response import IncrementalAlterConfigsResponse
from kio.schema.types import GroupId
from kio.static.primitive import i8

from muster.coordinator.client.coordinator_link import (
    AdminError,
    CoordinatorLink,
    NoCoordinator,
    NotCoordinatedHere,
    NotForGroup,
    NotMuster,
    Refused,
    UnknownGroup,
)
from muster.coordinator.group.commands import ConfigChange, ConfigOperation
from muster.coordinator.group.configs import COORDINATOR, GROUP_CONFIGS, MEMBERS, MUSTER
from muster.coordinator.group.outcomes import AlterGroupConfigOutcome, ListedMember
from muster.events.kafka.exchange import Exchange
from muster.events.kafka.security import NOT_SECURED, KafkaSecurity
from muster.events.near_names import did_you_mean

RETRY_MS = 30_000
"""How long a request is retried while the coordinator is loading or has moved."""

ANY_GROUP = "muster-any-group"
"""A group that need not exist: a user who may not describe it lacks DESCRIBE on GROUP *."""

_GROUP = i8(32)


class GroupRequests:
    """Finds groups' coordinators and sends them requests. Use it as an async context manager, in one event loop."""

    def __init__(self, bootstrap: str, *, limit_ms: int = RETRY_MS, security: KafkaSecurity = NOT_SECURED) -> None:
        """`bootstrap`: HOST:PORT of a coordinator or broker, or several, comma-separated. Raises InvalidArgument.

        `limit_ms`: how long each request is retried.
        """
        self._link = CoordinatorLink(bootstrap, retry_ms=limit_ms, security=security)

    @property
    def asked_at(self) -> str:
        """The addresses that were given, for messages."""
        return self._link.asked_at

    @property
    def user(self) -> str:
        """The user's principal, for messages."""
        return self._link.user

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        await self._link.close()

    async def _alter(
        self, group_id: str, changes: Iterable[ConfigChange], *, validate_only: bool = False
    ) -> AlterGroupConfigOutcome:
        """Alter configs. Raises AdminError; NotMuster, NotCoordinatedHere or NotForGroup if that explains a refusal."""
        changes = list(changes)
        outcome = await self._try_alter(group_id, changes, validate_only=validate_only)
        only_deletes = all(each.operation is ConfigOperation.DELETE and each.name in GROUP_CONFIGS for each in changes)
        try:
            if outcome.error is ErrorCode.invalid_config or (outcome.error is ErrorCode.none and only_deletes):
                await self.check_is_muster(group_id)
            elif outcome.error is ErrorCode.group_id_not_found:
                await self.list_members(group_id)
        except (NotCoordinatedHere, NotForGroup):
            raise
        except Refused:  # the user may not ask, or there is no such group: the outcome is more specific
            pass
        return outcome

    async def _try_alter(
        self, group_id: str, changes: Iterable[ConfigChange], *, validate_only: bool = False
    ) -> AlterGroupConfigOutcome:
        configs = tuple(
            AlterableConfig(name=each.name, config_operation=i8(each.operation), value=each.value) for each in changes
        )
        request = IncrementalAlterConfigsRequest(
            resources=(AlterConfigsResource(resource_type=_GROUP, resource_name=group_id, configs=configs),),
            validate_only=validate_only,
        )

        def error_of(response: IncrementalAlterConfigsResponse) -> tuple[ErrorCode, str | None]:
            (told,) = response.responses
            return told.error_code, told.error_message

        exchange = Exchange(request, IncrementalAlterConfigsResponse)
        error, message = error_of(await self._link.ask(group_id, exchange, error_of, changes=not validate_only))
        return AlterGroupConfigOutcome(error=error, message=message)

    async def _describe(self, group_id: str, names: tuple[str, ...] | None) -> DescribeConfigsResult:
        """Return the description of these configs. Raises Refused."""
        resource = DescribeConfigsResource(resource_type=_GROUP, resource_name=group_id, configuration_keys=names)
        exchange = Exchange(
            DescribeConfigsRequest(resources=(resource,), include_documentation=True), DescribeConfigsResponse
        )

        def error_of(response: DescribeConfigsResponse) -> tuple[ErrorCode, str | None]:
            (told,) = response.results
            return told.error_code, told.error_message

        response = await self._link.ask(group_id, exchange, error_of, changes=False)
        raise_if_refused(group_id, *error_of(response))
        return response.results[0]

    async def list_groups(self) -> frozenset[str]:
        """Return the ids of the classic groups of all brokers, or of Muster."""
        return frozenset(await self._link.list_groups(("classic",)))

    async def groups_like(self, group_id: str) -> str:
        """Return a hint with similarly named groups, to append to a sentence; "" if there are none, or on an error."""
        try:
            return did_you_mean(group_id, await self.list_groups())
        except AdminError:
            return ""

    async def describe_group(self, group_id: str) -> DescribedGroup:
        """Describe a group, here or upstream. Raises Refused if it does not exist."""
        request = DescribeGroupsRequest(groups=(GroupId(group_id),), include_authorized_operations=False)

        def error_of(response: DescribeGroupsResponse) -> tuple[ErrorCode, str | None]:
            (told,) = response.groups
            return told.error_code, told.error_message

        exchange = Exchange(request, DescribeGroupsResponse)
        response = await self._link.ask(group_id, exchange, error_of, changes=False)
        if error_of(response)[0] is ErrorCode.group_id_not_found:
            await self._check_is_classic(group_id)
        raise_if_refused(group_id, *error_of(response))
        return response.groups[0]

    async def _check_is_classic(self, group_id: str) -> None:
        """Raise NotCoordinatedHere for a group of a newer type, which DescribeGroups does not find."""
        with suppress(NoCoordinator):  # if that fails, the first response counts
            group_type = (await self._link.list_groups()).get(group_id, "")
            if group_type.lower() not in ("", "classic"):
                raise NotCoordinatedHere(group_id, group_type, is_newer=True)

    async def list_members(self, group_id: str) -> tuple[ListedMember, ...]:
        """List all members and expected instances. Raises Refused for a group that is unknown, or not Muster's."""
        members = await self._described_members(group_id)
        if not members and (described := await self.describe_group(group_id)).members:
            members = await self._described_members(group_id)  # the first member may have joined since
            if not members:
                raise NotCoordinatedHere(group_id, described.protocol_type)
        return members

    async def _described_members(self, group_id: str) -> tuple[ListedMember, ...]:
        entries = (await self._describe(group_id, (MEMBERS,))).configs
        if not entries:
            await self.check_is_muster(group_id)
        return msgspec.json.decode(entries[0].value or "[]", type=tuple[ListedMember, ...])

    # ---- Muster or a broker --------------------------------------------------------------------------

    async def check_is_muster(self, group_id: str) -> None:
        """Raise NotMuster if a Kafka broker answers, and NotForGroup if a sidecar does not coordinate the group."""
        if await self.has_muster_configs(group_id):
            return
        try:
            is_broker = await self._is_broker(group_id)
        except Refused:
            raise NotMuster(self._link.asked_at, perhaps_not_for=group_id) from None
        if is_broker:
            raise NotMuster(self._link.asked_at)
        raise NotForGroup(group_id)

    async def has_muster_configs(self, group_id: str) -> bool:
        """Return whether the group has Muster's configs; brokers, and sidecars for other groups, know none of them."""
        return bool((await self._describe(group_id, (COORDINATOR,))).configs)

    async def _is_broker(self, group_id: str) -> bool:
        """Return whether the server does not know members.coordinator; every sidecar knows it, for any group."""
        change = ConfigChange(name=COORDINATOR, operation=ConfigOperation.SET, value=MUSTER)
        outcome = await self._try_alter(group_id, [change], validate_only=True)
        return outcome.error is ErrorCode.invalid_config


def raise_if_refused(group_id: str, error: ErrorCode, message: str | None) -> None:
    if error is ErrorCode.group_id_not_found:
        raise UnknownGroup(group_id, message)
    if error is not ErrorCode.none:
        raise Refused(group_id, error, message)
