"""Requests of administrators to groups' coordinators, as Python functions.

    async with GroupAdmin("127.0.0.1:9092") as admin:
        results = await admin.add_members_to_group("orders", ["web-4", "web-5"], timeout_ms=600_000)
        for each in await admin.list_members("orders"):
            print(each.group_instance_id, each.standing)

Each function sends its request and interprets the response. `requests.py` builds the requests, and
`coordinator_link.py` manages the connections.

All functions except removals send one IncrementalAlterConfigs on the GROUP resource, so any AdminClient can do the
same; the configs are in `group/configs.py`. It changes all or nothing. If it is refused, it is sent again for each
member alone with `validate_only`, so that each gets its own result. A removal is a LeaveGroup (KIP-345), which removes
the members that it can, and has a result for each.

Durations are in ms. Every function raises AdminError (`coordinator_link.py`): InvalidArgument, NoCoordinator,
OutcomeUnknown, and Refused if the request is refused for the group as a whole.
"""

from collections import Counter
from collections.abc import Mapping, Sequence

import msgspec
from kio.schema.errors import ErrorCode
from kio.schema.leave_group.v5.request import LeaveGroupRequest, MemberIdentity
from kio.schema.leave_group.v5.response import LeaveGroupResponse
from kio.schema.types import GroupId

from muster.coordinator.client.coordinator_link import AdminError, InvalidArgument, OutcomeUnknown, error_text
from muster.coordinator.client.requests import GroupRequests, raise_if_refused
from muster.coordinator.group.commands import ConfigChange, ConfigOperation
from muster.coordinator.group.configs import (
    ANEW,
    EXPANSION_DELAY,
    LEARNER_TIMEOUT,
    LEARNERS,
    REBALANCE,
    REGISTERED,
    REGISTRATION_TIMEOUT,
    REPAIR,
    RETIRED,
    RETIREMENT_TIMEOUT,
    TARGET_GROUP_SIZE,
    UNASSIGNED_DELAY,
)
from muster.coordinator.group.outcomes import GroupDamage, ListedMember, Standing
from muster.events.kafka.exchange import Exchange
from muster.events.near_names import did_you_mean

_DYNAMIC_GROUP_CONFIG = 8
_SET, _DELETE, _APPEND, _SUBTRACT = ConfigOperation
_OF_THE_GROUP = frozenset(
    {ErrorCode.group_id_not_found, ErrorCode.invalid_group_id, ErrorCode.group_authorization_failed}
)
"""Errors of the group, not of a single member."""


class MemberResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a request for one member or instance.

    Without `done`, nothing was changed for it: it was refused (`error`), or others of its batch were (`error` is NONE).
    """

    member: str
    done: bool
    error: ErrorCode
    message: str | None

    @property
    def reason(self) -> str | None:
        """Why it was not done, as text for users; None if it was."""
        if self.done:
            return None
        if self.error is ErrorCode.none:
            return "not done because others of the batch were refused; it could be done alone"
        return error_text(self.error, self.message)


class ConfigEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A config of a group. `is_set`: for this group; else `value` is the default, None for a number that is off."""

    name: str
    value: str | None
    is_set: bool
    documentation: str


class GroupAdmin(GroupRequests):
    """All requests of administrators to groups' coordinators. Use it as an async context manager, in one event loop."""

    # ---- members -----------------------------------------------------------------------------------

    async def add_members_to_group(
        self, group_id: str, instance_ids: Sequence[str], *, timeout_ms: int | None = None
    ) -> tuple[MemberResult, ...]:
        """Register static members that will join (KIP-469): there is one rebalance once the last one has joined.

        `timeout_ms`: the group's registration timeout; None leaves it unchanged.
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
        """Announce that these members, given by instance id or member id, will leave.

        There is one rebalance once the last one has left. `timeout_ms`: the group's retirement timeout, after which it
        removes the rest; None leaves it unchanged.
        """
        return await self._alter_members(group_id, names, RETIRED, _APPEND, *_timeout(RETIREMENT_TIMEOUT, timeout_ms))

    async def keep_members(self, group_id: str, names: Sequence[str]) -> tuple[MemberResult, ...]:
        """Withdraw the retirement of these members, given by instance id or member id."""
        return await self._alter_members(group_id, names, RETIRED, _SUBTRACT)

    async def promote_learners(self, group_id: str, names: Sequence[str]) -> tuple[MemberResult, ...]:
        """Promote these learners, given by instance id or member id, now, in one rebalance."""
        return await self._alter_members(group_id, names, LEARNERS, _SUBTRACT)

    async def promote_all_learners(self, group_id: str) -> None:
        """Promote all learners now, in one rebalance."""
        await self.alter_group_config(group_id, {LEARNERS: None})

    async def remove_members_from_group(
        self, group_id: str, names: Sequence[str], *, reason: str | None = None
    ) -> tuple[MemberResult, ...]:
        """Remove members at once (KIP-345), given by instance id or member id, even if others are unknown.

        One request has each name as both kinds of id, so that there is one rebalance.
        """
        _check_names(names)
        stated = reason or "removed by an administrator"
        members = tuple(
            MemberIdentity(member_id=member_id, group_instance_id=instance_id, reason=stated)
            for name in names
            for member_id, instance_id in (("", name), (name, None))
        )
        exchange = Exchange(LeaveGroupRequest(group_id=GroupId(group_id), members=members), LeaveGroupResponse)
        response = await self._link.ask(group_id, exchange, lambda answer: (answer.error_code, None), changes=True)
        raise_if_refused(group_id, response.error_code, None)
        errors = {(each.member_id, each.group_instance_id): each.error_code for each in response.members}
        if errors.keys() != {(each.member_id, each.group_instance_id) for each in members}:
            raise OutcomeUnknown(f"group {group_id}: the answer to LeaveGroup is about other members than were named")
        if set(errors.values()) == {ErrorCode.unknown_member_id}:
            await self.describe_group(group_id)  # raises Refused if the group does not exist
        results = [_removal(name, errors["", name], errors[name, None]) for name in names]
        if all(each.error is not ErrorCode.unknown_member_id for each in results):
            return tuple(results)
        listed = await self._listed_if_allowed(group_id)
        return tuple(_with_what_is_there(each, listed) for each in results)

    async def _listed_if_allowed(self, group_id: str) -> tuple[ListedMember, ...]:
        try:
            return await self.list_members(group_id)
        except AdminError:  # a user who may remove members may lack the ACL to list them
            return ()

    # ---- configs -----------------------------------------------------------------------------------

    async def rebalance_group(self, group_id: str, *, force: bool = False) -> None:
        """Rebalance a stable group of static members now; `force`: also one with dynamic members."""
        await self.alter_group_config(group_id, {REBALANCE: "force" if force else "static"})

    async def set_target_group_size(self, group_id: str, size: int | None) -> None:
        """Set the number of active members, beyond which members are standbys; None: all are active."""
        await self.alter_group_config(group_id, {TARGET_GROUP_SIZE: _text(size)})

    async def set_expansion_delay(self, group_id: str, delay_ms: int | None) -> None:
        """Set how long joins of new members are gathered; None: not at all."""
        await self.alter_group_config(group_id, {EXPANSION_DELAY: _text(delay_ms)})

    async def set_unassigned_rebalance_delay(self, group_id: str, delay_ms: int | None) -> None:
        """Set how long partitions may be unassigned before Muster requests a rebalance; None: forever."""
        await self.alter_group_config(group_id, {UNASSIGNED_DELAY: _text(delay_ms)})

    async def set_learner_timeout(self, group_id: str, timeout_ms: int | None) -> None:
        """Set how long new members are learners before they are promoted; None: there are no learners."""
        await self.alter_group_config(group_id, {LEARNER_TIMEOUT: _text(timeout_ms)})

    async def alter_group_config(
        self, group_id: str, configs: Mapping[str, str | None], *, validate_only: bool = False
    ) -> None:
        """Set these configs, all or none; None restores the default. For names and values see `group/configs.py`."""
        if not configs:
            raise InvalidArgument("no config is named")
        changes = [
            ConfigChange(name=name, operation=_DELETE if value is None else _SET, value=value)
            for name, value in configs.items()
        ]
        outcome = await self._alter(group_id, changes, validate_only=validate_only)
        raise_if_refused(group_id, outcome.error, outcome.message)

    async def describe_group_config(self, group_id: str, names: Sequence[str] = ()) -> tuple[ConfigEntry, ...]:
        """Describe these configs of a group, or all. A group that does not exist has the defaults, as in Kafka."""
        return tuple(
            ConfigEntry(
                name=each.name,
                value=each.value,
                is_set=each.config_source == _DYNAMIC_GROUP_CONFIG,
                documentation=each.documentation or "",
            )
            for each in (await self._describe(group_id, tuple(names) or None)).configs
        )

    async def _alter_members(
        self, group_id: str, names: Sequence[str], config: str, operation: ConfigOperation, *others: ConfigChange
    ) -> tuple[MemberResult, ...]:
        """Append names to a list or subtract them; `others` are changed in the same request."""
        _check_names(names)
        for name in names:
            if "," in name:
                raise InvalidArgument(f"{name!r} cannot be named in a list whose parts are separated by commas")

        def changes(*named: str) -> list[ConfigChange]:
            return [ConfigChange(name=config, operation=operation, value=",".join(named)), *others]

        whole = await self._alter(group_id, changes(*names))
        if whole.error in _OF_THE_GROUP:
            raise_if_refused(group_id, whole.error, whole.message)
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

    # ---- quarantined groups --------------------------------------------------------------------------

    async def describe_damage(self, group_id: str) -> GroupDamage | None:
        """Describe what a repair would lose and keep; None if the group is not quarantined.

        Raises Refused if the group does not exist, and AdminError.
        """
        for config in await self.describe_group_config(group_id, (REPAIR,)):
            if config.name == REPAIR:
                return msgspec.json.decode(config.value or "", type=GroupDamage)
        await self.check_is_muster(group_id)
        await self.describe_group(group_id)
        return None

    async def repair_group(self, group_id: str) -> None:
        """Recreate the group from its readable records. Raises AdminError; Refused if it is not quarantined."""
        await self.alter_group_config(group_id, {REPAIR: ANEW})


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


def _with_what_is_there(result: MemberResult, listed: Sequence[ListedMember]) -> MemberResult:
    """Add a hint to the result of an unknown name: that the instance is expected, or which names are similar."""
    if result.error is not ErrorCode.unknown_member_id:
        return result
    if any(each.standing is Standing.EXPECTED and each.group_instance_id == result.member for each in listed):
        message = "it is not a member: it is expected, and has not joined (muster members withdraw)"
    else:
        names = [each.group_instance_id or each.member_id for each in listed]
        message = f"{result.message}{did_you_mean(result.member, names)}"
    return msgspec.structs.replace(result, message=message)


def _removal(name: str, by_instance: ErrorCode, by_member: ErrorCode) -> MemberResult:
    """Combine the errors of a name as an instance id and as a member id; as one of the two it is always unknown."""
    done = ErrorCode.none in {by_instance, by_member}
    error = by_member if by_instance is ErrorCode.unknown_member_id else by_instance
    unknown = error is ErrorCode.unknown_member_id
    return MemberResult(
        member=name,
        done=done,
        error=ErrorCode.none if done else error,
        message="the group has no such member" if unknown and not done else None,
    )
