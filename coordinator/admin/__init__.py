"""The client for administrators: requests to groups' coordinators as Python functions. `muster members` uses it.

    async with GroupAdmin("127.0.0.1:9092") as admin:
        results = await admin.add_members_to_group("orders", ["web-4", "web-5"], timeout_ms=600_000)
        for each in await admin.list_members("orders"):
            print(each.group_instance_id, each.standing)

Beside it are `moving.py` (`muster adopt`, `muster release`) and `repairing.py` (`muster groups repair`).

What belongs here: each function's request, and the meaning of its response. What it must not know: addresses and
connections (`link.py`), how anything is shown.

Everything but removals is one IncrementalAlterConfigs on the GROUP resource, so any AdminClient can do the same; the
configs are in `group/configs.py`. It changes all or nothing. When it is refused, it is sent again for each member alone
with `validate_only`, so that each gets a result of its own. A removal is KIP-345's LeaveGroup, which changes what it
can, and answers for each member.

Durations are in ms. Every function raises an AdminError (`link.py`): InvalidArgument, NoCoordinator, OutcomeUnknown,
and Refused when a request is refused for the group as a whole.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
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
from kio.schema.leave_group.v5.request import LeaveGroupRequest, MemberIdentity
from kio.schema.leave_group.v5.response import LeaveGroupResponse
from kio.schema.types import GroupId
from kio.static.primitive import i8

from muster.coordinator.admin.link import (
    AdminError,
    CoordinatorLink,
    InvalidArgument,
    NotCoordinatedHere,
    Refused,
    error_text,
)
from muster.coordinator.group.commands import ConfigChange, ConfigOperation
from muster.coordinator.group.configs import (
    EXPANSION_DELAY,
    LEARNER_TIMEOUT,
    LEARNERS,
    MEMBERS,
    REBALANCE,
    REGISTERED,
    REGISTRATION_TIMEOUT,
    RETIRED,
    RETIREMENT_TIMEOUT,
    TARGET_GROUP_SIZE,
)
from muster.coordinator.group.outcomes import AlterGroupConfigOutcome, ListedMember
from muster.events.kafka.exchange import Exchange
from muster.events.kafka.security import NOT_SECURED, KafkaSecurity

LIMIT_MS = 30_000
"""How long requests are retried while the coordinator is loading, or moves."""

_GROUP = i8(32)
_DYNAMIC_GROUP_CONFIG = 8
_SET, _DELETE, _APPEND, _SUBTRACT = ConfigOperation
_OF_THE_GROUP = frozenset(
    {ErrorCode.group_id_not_found, ErrorCode.invalid_group_id, ErrorCode.group_authorization_failed}
)
"""Errors of the group, which are no single member's."""


class MemberResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a request for one member, or instance.

    Without `done` nothing was changed for it: it was refused (`error`), or others of its batch were (`error` is NONE).
    """

    member: str
    done: bool
    error: ErrorCode
    message: str | None

    @property
    def reason(self) -> str | None:
        """The reason why it was not done, for people; None if it was."""
        if self.done:
            return None
        if self.error is ErrorCode.none:
            return "not done, since others of the batch were refused; alone it could be done"
        return error_text(self.error, self.message)


class ConfigEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A config of a group. `is_set`: for this group; else `value` is the default, None for a number that is off."""

    name: str
    value: str | None
    is_set: bool
    documentation: str


class GroupAdmin:
    """Finds groups' coordinators and sends them requests. Use it as an asynchronous context, in one event loop."""

    def __init__(self, bootstrap: str, *, limit_ms: int = LIMIT_MS, security: KafkaSecurity = NOT_SECURED) -> None:
        """`bootstrap`: HOST:PORT of a coordinator or broker, or several with commas. Raises InvalidArgument."""
        self._link = CoordinatorLink(bootstrap, limit_ms=limit_ms, security=security)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        await self._link.close()

    # ---- members -----------------------------------------------------------------------------------

    async def add_members_to_group(
        self, group_id: str, instance_ids: Sequence[str], *, timeout_ms: int | None = None
    ) -> tuple[MemberResult, ...]:
        """Register static members that will join (KIP-469): once the last one has, one rebalance.

        `timeout_ms`: the group's registration timeout; None leaves it as it is.
        """
        return await self._alter_members(
            group_id, instance_ids, REGISTERED, _APPEND, *_timeout(REGISTRATION_TIMEOUT, timeout_ms)
        )

    async def withdraw_registrations(self, group_id: str, instance_ids: Sequence[str]) -> tuple[MemberResult, ...]:
        """Withdraw the registrations of these instances."""
        return await self._alter_members(group_id, instance_ids, REGISTERED, _SUBTRACT)

    async def retire_members(
        self, group_id: str, names: Sequence[str], *, timeout_ms: int | None = None
    ) -> tuple[MemberResult, ...]:
        """Announce that these members will leave: once the last one has, one rebalance. By instance id or member id.

        `timeout_ms`: the group's retirement timeout, after which it removes the rest; None leaves it as it is.
        """
        return await self._alter_members(group_id, names, RETIRED, _APPEND, *_timeout(RETIREMENT_TIMEOUT, timeout_ms))

    async def keep_members(self, group_id: str, names: Sequence[str]) -> tuple[MemberResult, ...]:
        """Withdraw the retirement of these members. By instance id or member id."""
        return await self._alter_members(group_id, names, RETIRED, _SUBTRACT)

    async def promote_learners(self, group_id: str, names: Sequence[str]) -> tuple[MemberResult, ...]:
        """Promote these learners now, in one rebalance. By instance id or member id."""
        return await self._alter_members(group_id, names, LEARNERS, _SUBTRACT)

    async def promote_all_learners(self, group_id: str) -> None:
        """Promote all learners now, in one rebalance."""
        await self.alter_group_config(group_id, {LEARNERS: None})

    async def remove_members_from_group(
        self, group_id: str, names: Sequence[str], *, reason: str | None = None
    ) -> tuple[MemberResult, ...]:
        """Remove members at once (KIP-345), by instance id or member id; unknown ones do not keep the others.

        One request has each name both ways, so that there is one rebalance.
        """
        _check_names(names)
        stated = reason or "removed by an administrator"
        members = tuple(
            MemberIdentity(member_id=member_id, group_instance_id=instance_id, reason=stated)
            for name in names
            for member_id, instance_id in (("", name), (name, None))
        )
        exchange = Exchange(LeaveGroupRequest(group_id=GroupId(group_id), members=members), LeaveGroupResponse)
        response = await self._link.ask(group_id, exchange, lambda told: (told.error_code, None), changes=True)
        _raise_if_refused(group_id, response.error_code, None)
        errors = {(each.member_id, each.group_instance_id): each.error_code for each in response.members}
        if set(errors.values()) == {ErrorCode.unknown_member_id}:
            await self.describe_group(group_id)  # raises Refused for one that does not exist
        return tuple(_removal(name, errors["", name], errors[name, None]) for name in names)

    async def list_members(self, group_id: str) -> tuple[ListedMember, ...]:
        """List all members and expected instances. Raises Refused for a group that is unknown, or not Muster's."""
        members = await self._told_members(group_id)
        if not members and (described := await self.describe_group(group_id)).members:
            members = await self._told_members(group_id)  # the first may have come meanwhile
            if not members:
                raise NotCoordinatedHere(group_id, described.protocol_type)
        return members

    async def _told_members(self, group_id: str) -> tuple[ListedMember, ...]:
        entries = (await self._describe(group_id, (MEMBERS,))).configs
        if not entries:
            raise AdminError(f"the coordinator of group {group_id} does not tell its members: it is not Muster")
        return msgspec.json.decode(entries[0].value or "[]", type=tuple[ListedMember, ...])

    # ---- configs -----------------------------------------------------------------------------------

    async def rebalance_group(self, group_id: str, *, force: bool = False) -> None:
        """Rebalance a stable group of static members now; `force`: one with dynamic members too."""
        await self.alter_group_config(group_id, {REBALANCE: "force" if force else "static"})

    async def set_target_group_size(self, group_id: str, size: int | None) -> None:
        """Set the number of active members, beyond which members are standbys; None: all are active."""
        await self.alter_group_config(group_id, {TARGET_GROUP_SIZE: _text(size)})

    async def set_expansion_delay(self, group_id: str, delay_ms: int | None) -> None:
        """Set how long joins of new members are gathered; None: not at all."""
        await self.alter_group_config(group_id, {EXPANSION_DELAY: _text(delay_ms)})

    async def set_learner_timeout(self, group_id: str, timeout_ms: int | None) -> None:
        """Set how long new members are learners before they are promoted; None: there are no learners."""
        await self.alter_group_config(group_id, {LEARNER_TIMEOUT: _text(timeout_ms)})

    async def alter_group_config(
        self, group_id: str, settings: Mapping[str, str | None], *, validate_only: bool = False
    ) -> None:
        """Set these configs, all or none; None restores the default. Names and values: `group/configs.py`."""
        if not settings:
            raise InvalidArgument("no setting is named")
        changes = [
            ConfigChange(name=name, operation=_DELETE if value is None else _SET, value=value)
            for name, value in settings.items()
        ]
        outcome = await self._alter(group_id, changes, validate_only=validate_only)
        _raise_if_refused(group_id, outcome.error, outcome.message)

    async def describe_group_config(self, group_id: str, names: Sequence[str] = ()) -> tuple[ConfigEntry, ...]:
        """Describe all configs of a group, or these. A group that does not exist has the defaults, as in Kafka."""
        return tuple(
            ConfigEntry(
                name=each.name,
                value=each.value,
                is_set=each.config_source == _DYNAMIC_GROUP_CONFIG,
                documentation=each.documentation or "",
            )
            for each in (await self._describe(group_id, tuple(names) or None)).configs
        )

    # ---- requests ----------------------------------------------------------------------------------

    async def _alter_members(
        self, group_id: str, names: Sequence[str], setting: str, operation: ConfigOperation, *others: ConfigChange
    ) -> tuple[MemberResult, ...]:
        """Append names to a list, or subtract them; `others` are changed in the same request."""
        _check_names(names)
        for name in names:
            if "," in name:
                raise InvalidArgument(f"{name!r} cannot be named in a list whose parts are separated by commas")

        def changes(*named: str) -> list[ConfigChange]:
            return [ConfigChange(name=setting, operation=operation, value=",".join(named)), *others]

        whole = await self._alter(group_id, changes(*names))
        if whole.error in _OF_THE_GROUP:
            _raise_if_refused(group_id, whole.error, whole.message)
        done = whole.error is ErrorCode.none
        verdicts = [whole] * len(names)
        if not done and len(names) > 1:
            alone = [await self._alter(group_id, changes(name), validate_only=True) for name in names]
            if any(verdict.error is not ErrorCode.none for verdict in alone):
                verdicts = alone
        return tuple(
            MemberResult(member=name, done=done, error=verdict.error, message=verdict.message)
            for name, verdict in zip(names, verdicts, strict=True)
        )

    async def _alter(
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
        _raise_if_refused(group_id, *error_of(response))
        return response.results[0]

    async def list_groups(self) -> frozenset[str]:
        """List the ids of the classic groups of all brokers, or of Muster."""
        return await self._link.list_groups()

    async def describe_group(self, group_id: str) -> DescribedGroup:
        """Describe a group, wherever its members are. Raises Refused for a group that does not exist."""
        request = DescribeGroupsRequest(groups=(GroupId(group_id),), include_authorized_operations=False)

        def error_of(response: DescribeGroupsResponse) -> tuple[ErrorCode, str | None]:
            (told,) = response.groups
            return told.error_code, told.error_message

        exchange = Exchange(request, DescribeGroupsResponse)
        response = await self._link.ask(group_id, exchange, error_of, changes=False)
        _raise_if_refused(group_id, *error_of(response))
        return response.groups[0]


def _check_names(names: Sequence[str]) -> None:
    if not names:
        raise InvalidArgument("no member is named")
    for name, times in Counter(names).items():
        if not name:
            raise InvalidArgument("a member has an empty name")
        if times > 1:
            raise InvalidArgument(f"{name!r} is named twice")


def _timeout(name: str, timeout_ms: int | None) -> list[ConfigChange]:
    return [] if timeout_ms is None else [ConfigChange(name=name, operation=_SET, value=str(timeout_ms))]


def _text(number: int | None) -> str | None:
    return None if number is None else str(number)


def _removal(name: str, by_instance: ErrorCode, by_member: ErrorCode) -> MemberResult:
    """Combine the errors of a name as an instance id and as a member id: as one of them it is unknown."""
    done = ErrorCode.none in {by_instance, by_member}
    error = by_member if by_instance is ErrorCode.unknown_member_id else by_instance
    unknown = error is ErrorCode.unknown_member_id
    return MemberResult(
        member=name,
        done=done,
        error=ErrorCode.none if done else error,
        message="the group has no such member" if unknown and not done else None,
    )


def _raise_if_refused(group_id: str, error: ErrorCode, message: str | None) -> None:
    if error is not ErrorCode.none:
        raise Refused(group_id, error, message)
