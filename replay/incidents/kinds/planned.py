"""Rebalances that administrators or Muster itself requested, plans of administrators, and full groups."""

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
from muster.replay.incidents.episode.episode import Episode
from muster.replay.incidents.evidence.naming import NAMED_MAX
from muster.replay.incidents.grade import Grade
from muster.replay.incidents.kinds.asked_for import ENFORCED
from muster.replay.incidents.kinds.kind import EpisodeView, IncidentClaim, Kind
from muster.replay.incidents.kinds.refused import named, refused_text, statements
from muster.replay.rebalances.planned import configs_text
from muster.replay.rebalances.rebalance import Actor, TopicPartitions, ValueChange
from muster.replay.rebalances.wording import cause_text, partitions
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


_BY_ADMINISTRATOR: Final = (
    "if this was not intended: look for who calls muster members rebalance, or sets its config; a rebalance of its own"
    " helps only where partitions are assigned to no member (muster status)"
)
_BY_MUSTER: Final = (
    "clients that refresh their metadata notice new partitions by themselves: let the delay be longer than their"
    " metadata.max.age.ms (5 min by default), and look at why the leader did not"
)

_ENFORCED: Final = frozenset({Cause.REBALANCE_REQUESTED, Cause.PARTITIONS_UNASSIGNED})


def find(view: EpisodeView) -> Iterator[IncidentClaim]:
    yield from _asked_for(view)
    yield from _over_capacity(view)
    yield from _planned(view)


def _asked_for(view: EpisodeView) -> Iterator[IncidentClaim]:
    for act in view.free(AskedFor):
        if act.cause in _ENFORCED:
            is_muster = act.cause is Cause.PARTITIONS_UNASSIGNED
            yield IncidentClaim(
                kind=ENFORCED,
                acts=(act,),
                culprits=(),
                grade=Grade.RECORDED,
                headline=_by_muster(act, view.episode) if is_muster else cause_text(act.why, []),
                advice=(_BY_MUSTER if is_muster else _BY_ADMINISTRATOR,),
            )


def _by_muster(act: AskedFor, episode: Episode) -> str:
    """'Muster asked the group to rebalance (members.unassigned...), since orders grew from 6 to 8 partitions'."""
    found = [_found(each, _known_partitions(each.topic, act, episode)) for each in act.topics[:NAMED_MAX]]
    if len(act.topics) > NAMED_MAX:
        found.append(f"so it was with {plural(len(act.topics) - NAMED_MAX, 'other topic')}")
    since = "; ".join(found) or "partitions were assigned to no member"
    return f"Muster asked the group to rebalance ({UNASSIGNED_DELAY}), since {since}"


def _known_partitions(topic: str, act: AskedFor, episode: Episode) -> int:
    """Return how many partitions the topic had, by the highest number in assignments before this act."""
    earlier = (each.movement for each in episode.rebalances if each.last_seq < act.seq)
    moves = (move for movement in earlier if movement is not None for move in movement.moves)
    numbers = (of.partitions for move in moves for of in move.partitions if of.topic == topic)
    return max((1 + max(each) for each in numbers if each), default=0)


def _found(each: RebalancedTopic, known: int) -> str:
    """Describe what was found about a topic that had `known` partitions as far as was known: it only grew if that is
    fewer.
    """
    if not each.is_subscribed:
        return f"a member that does not subscribe {each.topic} had partitions of it"
    size = plural(each.partitions, "partition")
    if not each.assigned:
        return f"{each.topic} was subscribed, and none of its {size} was assigned"
    missing = sorted(set(range(each.partitions)).difference(each.assigned))
    if not missing:
        return f"members that do not subscribe {each.topic} had partitions of it"
    had = max(known, each.partitions_before or 0, 1 + max(each.assigned))
    if missing == list(range(had, each.partitions)):
        return f"{each.topic} grew from {had} to {size}"
    were = "was" if len(missing) == 1 else "were"
    unassigned = partitions([TopicPartitions(topic=each.topic, partitions=tuple(missing))])
    grew = f", and it grew from {had} to {size}" if had < each.partitions else ""
    return f"{unassigned} {were} assigned to no member{grew}"


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
    """Claim all requests, and the members that joined or left because of them, as one plan: few requests come at a
    time.
    """
    asked = [act for act in view.free(AskedFor) if act.cause not in (*_ENFORCED, Cause.STANDBY_UNFIT)]
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
    """Return a sentence for each kind of request and client, with the configs that it changed."""
    changes: defaultdict[str, list[ValueChange]] = defaultdict(list)
    for act in asked:
        changes[cause_text(act.why, [])] += act.configs
    return [f"{text}: {_changed(configs)}" if configs else text for text, configs in changes.items()]


def _changed(configs: Sequence[ValueChange]) -> str:
    more = len(configs) - NAMED_MAX
    return configs_text(configs[:NAMED_MAX]) + (f", and {plural(more, 'more change')}" if more > 0 else "")


def _by_plan(acts: Sequence[Went | Came]) -> Iterator[str]:
    """Yield a sentence for each cause about the members that joined and left because of an earlier plan."""
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
