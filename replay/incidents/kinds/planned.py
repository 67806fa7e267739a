"""Rebalances that administrators, or Muster itself, asked for, plans of administrators, and groups that are full."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Final

from muster.coordinator.group.configs import UNASSIGNED_DELAY
from muster.events.causes import Cause
from muster.events.state import Member
from muster.replay.incidents.episode.acts import (
    AnyAct,
    AskedFor,
    Came,
    Departure,
    JoinNotLetIn,
    Phase,
    RebalancedTopic,
    Went,
)
from muster.replay.incidents.evidence.naming import NAMED_MAX
from muster.replay.incidents.grade import Grade
from muster.replay.incidents.kinds.asked_for import ENFORCED
from muster.replay.incidents.kinds.kind import EpisodeView, IncidentClaim, Kind
from muster.replay.incidents.kinds.refused import named, refused_text, statements
from muster.replay.rebalances.planned import configs_text
from muster.replay.rebalances.rebalance import Actor, ValueChange
from muster.replay.rebalances.wording import cause_text
from muster.replay.text.grammar import plural

PLANNED = Kind(
    "planned",
    "An administrator registered or retired members, changed the group's configs, or released the group.",
    "none: they did what was planned",
)
CAPACITY = Kind(
    "capacity",
    "The group had more members than group.max.size allows, or refused members for it.",
    "none of the members",
)


_ENFORCED: Final = frozenset({Cause.REBALANCE_REQUESTED, Cause.PARTITIONS_UNASSIGNED})


def find(view: EpisodeView) -> Iterator[IncidentClaim]:
    yield from _asked_for(view)
    yield from _over_capacity(view)
    yield from _planned(view)


def _asked_for(view: EpisodeView) -> Iterator[IncidentClaim]:
    for act in view.free(AskedFor):
        if act.cause in _ENFORCED:
            text = cause_text(act.why, []) if act.cause is Cause.REBALANCE_REQUESTED else _by_muster(act)
            yield IncidentClaim(kind=ENFORCED, acts=(act,), culprits=(), grade=Grade.RECORDED, headline=text)


def _by_muster(act: AskedFor) -> str:
    """'Muster asked the group to rebalance, since orders grew from 6 to 8 partitions (members.unassigned...)'."""
    found = [_found(each) for each in act.topics[:NAMED_MAX]]
    if len(act.topics) > NAMED_MAX:
        found.append(f"so it was with {plural(len(act.topics) - NAMED_MAX, 'other topic')}")
    since = "; ".join(found) or "partitions were assigned to nobody"
    return f"Muster asked the group to rebalance ({UNASSIGNED_DELAY}), since {since}"


def _found(each: RebalancedTopic) -> str:
    if not each.is_subscribed:
        return f"a member that does not subscribe {each.topic} had partitions of it"
    if not each.assigned:
        return f"{each.topic} was subscribed, and none of its {plural(each.partitions, 'partition')} was assigned"
    if each.assigned < each.partitions:
        return f"{each.topic} grew from {each.assigned} to {plural(each.partitions, 'partition')}"
    return f"members that do not subscribe {each.topic} had partitions of it"


def _over_capacity(view: EpisodeView) -> Iterator[IncidentClaim]:
    refused = [act for act in view.free(JoinNotLetIn) if act.why.cause is Cause.GROUP_FULL]
    dropped = [act for act in view.free(Went) if act.why.cause in (Cause.OVER_CAPACITY, Cause.GROUP_FULL)]
    phases = [act for act in view.free(Phase) if act.why.cause is Cause.OVER_CAPACITY]
    acts: list[AnyAct] = sorted([*refused, *dropped, *phases], key=lambda act: act.seq)
    if not acts:
        return
    parts = [f"{named(refused)} {refused_text(refused)}"] if refused else []
    parts += [f"{plural(len(dropped), 'member')} dropped"] if dropped else []
    allowed = f", {plural(refused[-1].members, 'member')}" if refused else ""
    yield IncidentClaim(
        kind=CAPACITY,
        acts=tuple(acts),
        culprits=(),
        grade=Grade.RECORDED,
        headline=f"the group has as many members as group.max.size allows{allowed}: {', '.join(parts)}",
        chain=tuple(statements(refused)),
        advice=("raise group.max.size, or start fewer consumers of this group",),
    )


def _planned(view: EpisodeView) -> Iterator[IncidentClaim]:
    """One plan: what was asked for, and who came and went by it. A group has few plans at a time."""
    asked = [act for act in view.free(AskedFor) if act.cause not in _ENFORCED]
    went = [act for act in view.free(Went) if act.how is Departure.PLANNED]
    came = [act for act in view.free(Came) if act.planned]
    back = view.returns()
    came += [each for act in went if act.seq in back and isinstance(each := back[act.seq].came, Came)]
    acts: list[AnyAct] = sorted([*asked, *went, *came], key=lambda act: act.seq)
    if not acts:
        return
    told = _by_request(asked) or list(_by_plan([*went, *came]))
    yield IncidentClaim(
        kind=PLANNED, acts=tuple(acts), culprits=(), grade=Grade.RECORDED, headline="; then ".join(told)
    )


def _by_request(asked: Sequence[AskedFor]) -> list[str]:
    """A sentence for each kind of request and client, with the configs that it changed."""
    changes: defaultdict[str, list[ValueChange]] = defaultdict(list)
    for act in asked:
        changes[cause_text(act.why, [])] += act.configs
    return [f"{text}: {_changed(configs)}" if configs else text for text, configs in changes.items()]


def _changed(configs: Sequence[ValueChange]) -> str:
    more = len(configs) - NAMED_MAX
    return configs_text(configs[:NAMED_MAX]) + (f", and {plural(more, 'more change')}" if more > 0 else "")


def _by_plan(acts: Sequence[Went | Came]) -> Iterator[str]:
    """Word the members that came and went by an earlier plan: a sentence for each cause."""
    by_cause: defaultdict[Cause, list[Went | Came]] = defaultdict(list)
    for act in sorted(acts, key=lambda act: act.seq):
        by_cause[act.why.cause].append(act)
    for same in by_cause.values():
        yield cause_text(same[0].why, [_actor(act.member) for act in same])


def _actor(member: Member) -> Actor:
    return Actor(
        member_id=member.member_id,
        group_instance_id=member.group_instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        principal=member.principal,
    )
