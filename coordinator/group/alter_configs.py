"""IncrementalAlterConfigs on the GROUP resource: all configs that a request names are changed, or none.

    read       each change into a MembershipChange: numbers, and the resulting lists
    check      it against the group; the first violation is the response, with the value and the limit
    apply      events, and at most one rebalance

Errors: 40 an unknown config or an invalid value; 92 an instance that is registered, retired or a member already; 25 an
unknown one; 23 the config does not apply to the group's protocol type; 27 the group is rebalancing; 42 an invalid
request for this group; 81 above group.max.size.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

import msgspec
from kio.schema.errors import ErrorCode

from muster.coordinator.group.commands import AlterGroupConfig, ConfigChange, ConfigOperation
from muster.coordinator.group.configs import (
    COORDINATOR,
    GROUP_CONFIGS,
    LEARNER_TIMEOUT,
    LEARNERS,
    LIST_LENGTH_MAX,
    REBALANCE,
    REGISTERED,
    REPAIR,
    RETIRED,
    TARGET_GROUP_SIZE,
    UPSTREAM,
    BadConfig,
    ConfigType,
    coordinator,
    number,
)
from muster.coordinator.group.departures import retiring_members
from muster.coordinator.group.held_joins import held_join_of
from muster.coordinator.group.membership_change import MembershipChange, apply_change
from muster.coordinator.group.outcomes import AlterGroupConfigOutcome, ReleasedMember
from muster.coordinator.group.roles import learners, supports_roles
from muster.coordinator.group.turn import Turn
from muster.events.causes import Cause
from muster.events.ids import UNKNOWN_MEMBER_ID, GroupInstanceId, MemberId
from muster.events.near_names import did_you_mean
from muster.events.records import FORMAT_LEVEL
from muster.events.state import Group, GroupState, Member, MemberRole

LISTED_AS: Final[Mapping[str, str]] = {LEARNERS: "a learner", REGISTERED: "expected", RETIRED: "retiring"}
"""The description of a name that is in the list of a config."""

_ROLES: Final[Mapping[MemberRole, str]] = {
    MemberRole.ACTIVE: "an active member",
    MemberRole.LEARNER: "a learner",
    MemberRole.STANDBY: "a standby",
    MemberRole.CALLED: "a standby that was called",
}


def what_is(turn: Turn, name: str) -> str | None:
    """Return a description of what this name is in the group; None if it is unknown."""
    group, instance = turn.group, GroupInstanceId(name)
    member = group.members.get(group.instances.get(instance) or MemberId(name))
    if member is not None:
        return _member(member, name)
    if held_join_of(turn.soft, instance) is not None or name in turn.soft.held_joins:
        return "expected, and its join waits for others"
    if instance in group.registrations:
        return "expected, and has not joined"
    return None


def like(turn: Turn, name: str) -> str:
    """Return a hint with similar names, to append to a sentence."""
    members = (member.name for member in turn.group.members.values())
    return did_you_mean(name, [*members, *turn.group.registrations])


def _member(member: Member, name: str) -> str:
    if name != member.name:
        return f"the member id of {member.name!r}, which has to be named by its instance id"
    return f"{_ROLES[member.role]}{' that is retiring' if member.retiring else ''}"


REGISTERED_INSTANCE_ID_LENGTH_MAX = 249
NAME_SHOWN = 100
_INSTANCE_ID_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")
STATIC, FORCE = "static", "force"


class ChangeRefused(Exception):
    """The request is refused as a whole, and nothing is changed; `outcome` has the error and the message."""

    def __init__(self, error: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.outcome = AlterGroupConfigOutcome(error=error, message=message)


def alter_group_config(turn: Turn, command: AlterGroupConfig) -> None:
    """Change the configs of a group that exists."""
    try:
        change = _read_changes(turn, command.changes)
    except ChangeRefused as refused:
        turn.reply(command.caller, refused.outcome)
        return
    released: tuple[ReleasedMember, ...] = ()
    if not command.validate_only:
        turn.caused_by(Cause.GROUP_CONFIGURED, command.caller, UNKNOWN_MEMBER_ID, None)
        released = apply_change(turn, change)
    turn.reply(command.caller, AlterGroupConfigOutcome(error=ErrorCode.none, released=released))


# ---- reading -----------------------------------------------------------------------------------


def _read_changes(turn: Turn, changes: Sequence[ConfigChange]) -> MembershipChange:
    """Combine all changes of a request. Raises ChangeRefused."""
    group = turn.group
    names: set[str] = set()
    for name in (change.name for change in changes):
        if name == REPAIR:
            text = f"{REPAIR}: group {turn.group.group_id!r} is not quarantined, there is nothing to repair"
            raise ChangeRefused(ErrorCode.invalid_request, text)
        if name not in GROUP_CONFIGS:
            near = did_you_mean(name, GROUP_CONFIGS, at_most=1)
            text = f"{name[:NAME_SHOWN]}: there is no such config of a group here{near}"
            raise ChangeRefused(ErrorCode.invalid_config, text)
        if name in names:
            raise ChangeRefused(ErrorCode.invalid_request, f"{name}: named twice in one request")
        names.add(name)
    membership_change = MembershipChange(config=group.config)
    for change in changes:
        definition = GROUP_CONFIGS[change.name]
        if turn.now.format_level < definition.format_level:
            text = (
                f"{change.name}: the event log has format level {turn.now.format_level}, which cannot store it; stop"
                f" serving and run `muster log upgrade`, which raises it to {FORMAT_LEVEL}"
            )
            raise ChangeRefused(ErrorCode.invalid_config, text)
        if definition.type is ConfigType.LIST:
            membership_change = _with_list(turn, membership_change, change)
        elif change.operation in (ConfigOperation.APPEND, ConfigOperation.SUBTRACT):
            text = f"{change.name} is not a LIST but of type {definition.type.name}: use SET or DELETE"
            raise ChangeRefused(ErrorCode.invalid_config, text)
        elif definition.field is None:
            membership_change = msgspec.structs.replace(membership_change, rebalance=_asks_for_rebalance(turn, change))
        else:
            membership_change = msgspec.structs.replace(
                membership_change,
                config=msgspec.structs.replace(membership_change.config, **{definition.field: _value(change)}),
            )
    for name in (TARGET_GROUP_SIZE, LEARNER_TIMEOUT):
        if name in names and group.members and not supports_roles(turn):
            kind = f"protocol type {group.image.protocol_type!r}"
            raise ChangeRefused(
                ErrorCode.inconsistent_group_protocol,
                f"{name}: only groups of protocol type 'consumer' can have members without partitions, and not "
                f"those of Kafka Streams; group {group.group_id!r} has {kind}",
            )
    return membership_change


def _value(change: ConfigChange) -> int | str | None:
    if change.operation is ConfigOperation.DELETE:
        return None
    try:
        if change.name == COORDINATOR:
            return coordinator(change.value)
        return number(GROUP_CONFIGS[change.name], change.value or "")
    except BadConfig as bad:
        raise ChangeRefused(ErrorCode.invalid_config, str(bad)) from bad


def _with_list(turn: Turn, membership_change: MembershipChange, change: ConfigChange) -> MembershipChange:
    group = turn.group
    lists: dict[str, Callable[[], Iterable[str]]] = {
        REGISTERED: lambda: group.registrations,
        RETIRED: lambda: (member.name for member in retiring_members(group)),
        LEARNERS: lambda: (member.name for member in learners(group)),
    }
    added, removed = _difference(turn, change, list(lists[change.name]()))
    if change.name == REGISTERED:
        _check_registration(turn, added)
        return msgspec.structs.replace(
            membership_change, registered=tuple(map(GroupInstanceId, added)), withdrawn=tuple(removed)
        )
    if change.name == RETIRED:
        return msgspec.structs.replace(
            membership_change, retired=_members(turn, RETIRED, added), kept=_members(turn, RETIRED, removed)
        )
    assert change.name == LEARNERS
    if added:
        raise ChangeRefused(ErrorCode.invalid_config, f"{LEARNERS}={added[0]}: only a new member becomes a learner")
    return msgspec.structs.replace(membership_change, promoted=_members(turn, LEARNERS, removed))


def _difference(turn: Turn, change: ConfigChange, now: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the names that the change adds to the list, and those it removes."""
    value = change.value or ""
    if len(value) > LIST_LENGTH_MAX:
        raise ChangeRefused(
            ErrorCode.invalid_config, f"{change.name}: {len(value)} characters, {LIST_LENGTH_MAX} at most"
        )
    named = [text for text in (part.strip() for part in value.split(",")) if text]
    if len(set(named)) < len(named):
        twice = next(name for name, count in Counter(named).items() if count > 1)
        raise ChangeRefused(ErrorCode.duplicate_resource, f"{change.name}: {twice!r} is named twice")
    added, removed = _changed(turn, change, named, now)
    length = sum(len(name) + 1 for name in (*now, *added)) - sum(len(name) + 1 for name in removed)
    if added and length > LIST_LENGTH_MAX:
        raise ChangeRefused(ErrorCode.invalid_config, f"{change.name}: {length} characters, {LIST_LENGTH_MAX} at most")
    return added, removed


def _changed(turn: Turn, change: ConfigChange, named: list[str], now: Sequence[str]) -> tuple[list[str], list[str]]:
    wanted, there = set(named), set(now)
    match change.operation:
        case ConfigOperation.SET | ConfigOperation.DELETE:
            return [name for name in named if name not in there], [name for name in now if name not in wanted]
        case ConfigOperation.APPEND:
            for name in named:
                if name in there:
                    text = f"{change.name}: {name!r} is {LISTED_AS[change.name]} already"
                    raise ChangeRefused(ErrorCode.duplicate_resource, text)
            return named, []
        case ConfigOperation.SUBTRACT:
            for name in named:
                if name not in there:
                    raise _refusal(turn, change.name, name, LISTED_AS[change.name])
            return [], named


# ---- checking ----------------------------------------------------------------------------------


def _check_registration(turn: Turn, instances: Sequence[str]) -> None:
    group = turn.group
    if instances:
        _check_not_released(group, REGISTERED)
    for instance in instances:
        is_plain = _INSTANCE_ID_CHARACTERS.issuperset(instance) and instance not in {".", ".."}
        if not is_plain or len(instance) > REGISTERED_INSTANCE_ID_LENGTH_MAX:
            limits = f"1 to {REGISTERED_INSTANCE_ID_LENGTH_MAX} of a-z, A-Z, 0-9, '.', '_' and '-'"
            raise ChangeRefused(ErrorCode.invalid_config, f"{REGISTERED}: {instance!r} is no instance id: {limits}")
        if instance in group.instances:
            member = group.members[group.instances[GroupInstanceId(instance)]]
            where = f"{member.member_id} at {member.client_host.removeprefix('/')}"
            raise ChangeRefused(
                ErrorCode.duplicate_resource, f"{REGISTERED}: {instance!r} is a member already, {where}"
            )
    size = len(group.members) + len(group.registrations) + len(instances)
    if instances and size > turn.settings.max_size:
        limit = f"group.max.size={turn.settings.max_size}"
        raise ChangeRefused(
            ErrorCode.group_max_size_reached, f"{REGISTERED}: the group would have {size} members, {limit}"
        )


def _check_not_released(group: Group, name: str) -> None:
    if group.config.coordinator == UPSTREAM:
        raise ChangeRefused(
            ErrorCode.invalid_request,
            f"{name}: group {group.group_id!r} is coordinated by the cluster upstream: it was released, adopt it first",
        )


def _members(turn: Turn, config: str, names: Sequence[str]) -> tuple[Member, ...]:
    by_name = {member.name: member for member in turn.group.members.values()}
    for name in names:
        if name not in by_name:
            raise _refusal(turn, config, name, "a member")
    return tuple(by_name[name] for name in names)


def _refusal(turn: Turn, config: str, name: str, wanted: str) -> ChangeRefused:
    """Refuse a name that is not what the config needs; the text says what it is instead."""
    what = what_is(turn, name)
    if what is None:
        text = f"{config}: group {turn.group.group_id!r} has no member {name!r}{like(turn, name)}"
        return ChangeRefused(ErrorCode.unknown_member_id, text)
    return ChangeRefused(ErrorCode.invalid_request, f"{config}: {name!r} is not {wanted}: it is {what}")


def _asks_for_rebalance(turn: Turn, change: ConfigChange) -> bool:
    if change.operation is ConfigOperation.DELETE or not change.value:
        return False
    group, value = turn.group, change.value
    if value not in (STATIC, FORCE):
        raise ChangeRefused(
            ErrorCode.invalid_config, f"{REBALANCE}={value[:NAME_SHOWN]}: should be '{STATIC}' or '{FORCE}'"
        )
    _check_not_released(group, REBALANCE)
    if turn.image.state is GroupState.EMPTY:
        raise ChangeRefused(ErrorCode.invalid_request, f"{REBALANCE}={value}: group {group.group_id!r} has no members")
    if turn.image.state is not GroupState.STABLE:
        raise ChangeRefused(
            ErrorCode.rebalance_in_progress,
            f"{REBALANCE}={value}: group {group.group_id!r} is rebalancing already, it is in {turn.image.state.value}",
        )
    dynamic = [member.member_id for member in group.members.values() if member.group_instance_id is None]
    if dynamic and value == STATIC:
        raise ChangeRefused(
            ErrorCode.invalid_request,
            f"{REBALANCE}={value}: {len(dynamic)} of {len(group.members)} members are dynamic, such as {dynamic[0]}; "
            f"'{FORCE}' rebalances them too",
        )
    return True
