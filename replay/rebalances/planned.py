"""Administrators' plans for a group's membership and their results, as text.

Plans are separate events in the log: configs, registrations, retirements, promotions. The request shows who asked. A
plan's deadline is soft state and not in the log, but its timeout and the event when it has passed are.
"""

from collections.abc import Iterable, Iterator, Sequence, Set
from itertools import groupby

from muster.coordinator.group.configs import values_set
from muster.events.causes import Cause
from muster.events.events import (
    GroupConfigured,
    InstanceRegistered,
    MemberEvent,
    MemberRemoved,
    MemberRoleChanged,
    RebalanceStarted,
    RegistrationEnded,
    RegistrationEvent,
    Why,
)
from muster.events.state import GroupConfig
from muster.replay.history.items import Part
from muster.replay.rebalances.rebalance import MemberRef, Planned, ValueChange, ref
from muster.replay.rebalances.wording import asked_by, name, named
from muster.replay.text.grammar import listed, plural

_RETIREMENTS = frozenset({Cause.RETIREMENT_COMPLETE, Cause.RETIREMENT_TIMED_OUT, Cause.RETIREMENT_WITHDRAWN})
_PROMOTIONS = frozenset({Cause.LEARNERS_PROMOTED, Cause.LEARNER_TIMEOUT_ELAPSED, Cause.GROUP_CONFIGURED})


# ---- configs ------------------------------------------------------------------------------------


def config_changes(before: GroupConfig, after: GroupConfig) -> tuple[ValueChange, ...]:
    """Return the configs that changed."""
    earlier, later = values_set(before), values_set(after)
    return tuple(
        ValueChange(name=name, before=earlier.get(name), after=later.get(name))
        for name in dict.fromkeys((*later, *earlier))
        if earlier.get(name) != later.get(name)
    )


def configs_text(changes: Iterable[ValueChange]) -> str:
    """'target.group.size from 2 to 3'."""
    return listed([_change_text(change) for change in changes]) or "nothing changed"


def _change_text(change: ValueChange) -> str:
    if change.after is None:
        return f"{change.name} is no longer set (it was {change.before})"
    if change.before is None:
        return f"{change.name} was set to {change.after}"
    return f"{change.name} from {change.before} to {change.after}"


def configured_text(event: GroupConfigured, before: GroupConfig | None) -> str:
    """Describe a change of configs; if `before` is not known (None), list all that are set."""
    if event.why.cause is Cause.GROUP_DELETED:
        return "the group's configs were deleted with the group"
    if before is None:
        told = listed([f"{name}={value}" for name, value in values_set(event.config).items()])
        return f"the group's configs were changed{asked_by(event.why)}; set are now: {told or 'none'}"
    changes = config_changes(before, event.config)
    return f"the group's configs were changed{asked_by(event.why)}: {configs_text(changes)}"


# ---- announcements ------------------------------------------------------------------------------


_ASKED_BY_NOBODY = frozenset({Cause.GROUP_DELETED, Cause.RECORD_OVERWRITTEN})


def announcements(parts: Iterable[Part], before: GroupConfig) -> Iterator[tuple[Why, int, str]]:
    """Yield a transition's plans, made or timed out: the reason, the first event's seq, and the text."""
    asked = (part for part in parts if part.why.cause not in _ASKED_BY_NOBODY)
    for (kind, cause), (*same,) in groupby(asked, key=lambda part: (type(part), part.why.cause)):
        first = same[0]
        if isinstance(first, GroupConfigured):
            text: str | None = configured_text(first, before)
        elif isinstance(first, RegistrationEvent):
            instances = [part.registration.group_instance_id for part in same if isinstance(part, RegistrationEvent)]
            text = registration_text(kind, first.why, instances)
        else:
            text = _retirement_text(cause, first.why, [part for part in same if isinstance(part, MemberRoleChanged)])
        if text is not None:
            yield first.why, first.seq, text


def registration_text(kind: type[Part], why: Why, instances: Sequence[str]) -> str | None:
    """Describe these registrations, or their end; None if they ended because the instances joined, which other events
    show.
    """
    count, names = plural(len(instances), "instance"), named(instances)
    if kind is InstanceRegistered:
        return f"{count} registered and expected: {names}{asked_by(why)}"
    if why.cause is Cause.REGISTRATION_WITHDRAWN:
        return f"the registration of {count} was withdrawn: {names}{asked_by(why)}"
    if why.cause is Cause.REGISTRATION_TIMED_OUT:
        return f"the time for registered instances to join ran out: {names} did not join"
    return None


def _retirement_text(cause: Cause, why: Why, changed: Sequence[MemberRoleChanged]) -> str | None:
    names = named(name(ref(event.member)) for event in changed)
    if changed and cause is Cause.MEMBERS_RETIRED:
        return f"{plural(len(changed), 'member')} retired and asked to leave: {names}{asked_by(why)}"
    if changed and cause is Cause.RETIREMENT_WITHDRAWN:
        return f"{plural(len(changed), 'member')} to stay after all: {names}{asked_by(why)}"
    return None


# ---- triggers -----------------------------------------------------------------------------------


def planned(
    started: RebalanceStarted,
    parts: Sequence[Part],
    *,
    before: GroupConfig,
    gone: Sequence[MemberRef],
    came: Sequence[MemberRef],
) -> Planned | None:
    """Return the plan behind a trigger, None if there is none.

    `parts` are those of the trigger's transition, `gone` the retired members that left since the last rebalance,
    `came` the members whose joins had been delayed.
    """
    instances = {member.group_instance_id for member in came}
    cause = started.why.cause
    left = [ref(part.member) for part in parts if isinstance(part, MemberRemoved) and part.member.retiring]
    removed = tuple(_members(parts, MemberRemoved, {Cause.RETIREMENT_TIMED_OUT}))
    told = Planned(
        came=tuple(came),
        did_not_come=tuple(
            part.registration.group_instance_id
            for part in parts
            if isinstance(part, RegistrationEnded) and part.registration.group_instance_id not in instances
        ),
        went=tuple(m for m in (*gone, *left) if m not in removed) if cause in _RETIREMENTS else (),
        removed=removed,
        stay=tuple(_members(parts, MemberRoleChanged, {Cause.RETIREMENT_WITHDRAWN})),
        promoted=tuple(_members(parts, MemberRoleChanged, _PROMOTIONS)),
        configs=tuple(
            change
            for part in parts
            if isinstance(part, GroupConfigured)
            for change in config_changes(before, part.config)
        ),
    )
    return None if told == Planned() else told


def _members(parts: Iterable[Part], kind: type[MemberEvent], wanted: Set[Cause]) -> Iterator[MemberRef]:
    for part in parts:
        if isinstance(part, kind) and part.why.cause in wanted:
            yield ref(part.member)


def planned_text(cause: Cause, told: Planned) -> str:
    """Say which members joined, left, or did neither, to be added to the cause's sentence; empty if there is nothing to
    add.
    """
    came, went = _named(told.came), _named(told.went)
    expected = named(told.did_not_come)
    match cause:
        case Cause.REGISTRATION_COMPLETE:
            phrases = [came]
        case Cause.REGISTRATION_TIMED_OUT:
            phrases = [came and f"{came} joined", expected and f"{expected} did not"]
        case Cause.REGISTRATION_WITHDRAWN:
            phrases = [expected, came and f"{came} had been waiting and joined"]
        case Cause.EXPANSION_DELAY_ELAPSED:
            phrases = [came and f"{came} joined"]
        case Cause.RETIREMENT_COMPLETE:
            phrases = [went]
        case Cause.RETIREMENT_TIMED_OUT:
            phrases = [_named(told.removed), went and f"{went} had already left"]
        case Cause.RETIREMENT_WITHDRAWN:
            phrases = [f"{_named(told.stay)} to stay", went and f"{went} had already left"]
        case Cause.LEARNERS_PROMOTED | Cause.LEARNER_TIMEOUT_ELAPSED:
            phrases = [_named(told.promoted)]
        case Cause.GROUP_CONFIGURED:
            phrases = [configs_text(told.configs) if told.configs else ""]
        case _:
            phrases = []
    text = "; ".join(filter(None, phrases))
    return f": {text}" if text else ""


def _named(members: Iterable[MemberRef]) -> str:
    return named(map(name, members))
