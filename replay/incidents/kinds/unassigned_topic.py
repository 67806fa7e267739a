"""A subscribed topic that is assigned to no member: there was no rebalance for it, or rebalancing did not help.

A static member that comes back with another subscription causes no rebalance, as in Kafka. A leader assigns no
partitions of a topic that does not exist, or that its client does not know yet.
"""

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from muster.coordinator.group.configs import UNASSIGNED_DELAY
from muster.events.events import GroupDeleted, GroupEmptied, GroupStabilized
from muster.events.state import Member
from muster.replay.incidents.episode.acts import AnyAct, CameBack, Phase, TopicsUnassigned, topics_text
from muster.replay.incidents.episode.episode import Episode
from muster.replay.incidents.evidence.naming import process_name, processes
from muster.replay.incidents.grade import Grade
from muster.replay.incidents.incident import Statement
from muster.replay.incidents.kinds.kind import EpisodeView, IncidentClaim, Kind
from muster.replay.incidents.windows import UNASSIGNED_MS
from muster.replay.rebalances.rebalance import PartitionMove
from muster.replay.text.grammar import few
from muster.replay.text.times import duration, instant

KIND = Kind(
    "unassigned-topic",
    "Members subscribe a topic, and no member is assigned any of it: a static member came back with it and the group"
    " did not rebalance, or the leader assigned nothing of it.",
    "the static members that came back with it; else none",
)

TOLD_MAX: Final = 20
"""The maximum number of members with a separate statement."""


class _Unassigned(msgspec.Struct, frozen=True, kw_only=True):
    """A time in which topics had no consumer; `until`: its end; None: they are still not assigned."""

    acts: tuple[TopicsUnassigned, ...]
    came_back: tuple[CameBack, ...]
    until: Phase | None

    @property
    def topics(self) -> list[str]:
        return sorted(set[str]().union(*(act.topics for act in self.acts)))


def find(view: EpisodeView) -> Iterator[IncidentClaim]:
    for unassigned in _spans(view.episode):
        yield _claim(unassigned, view.episode)


def _spans(episode: Episode) -> Iterator[_Unassigned]:
    """Yield the times in which topics were unassigned, except short ones: a client's metadata may be stale for a
    while.
    """
    acts: list[TopicsUnassigned] = []
    by_seq = {act.seq for act in episode.of(TopicsUnassigned)}
    both: list[TopicsUnassigned | Phase] = [*episode.of(TopicsUnassigned), *episode.of(Phase)]
    for act in sorted(both, key=lambda act: act.seq):
        if isinstance(act, TopicsUnassigned):
            acts.append(act)
        elif acts and _ends_it(act, by_seq):
            if act.at_ms - acts[0].at_ms >= UNASSIGNED_MS:
                yield _unassigned(acts, act, episode)
            acts = []
    if acts:
        yield _unassigned(acts, None, episode)


def _ends_it(act: Phase, unassigned_seqs: set[int]) -> bool:
    if isinstance(act.event, GroupEmptied | GroupDeleted):
        return True
    return isinstance(act.event, GroupStabilized) and act.seq not in unassigned_seqs


def _unassigned(acts: Sequence[TopicsUnassigned], until: Phase | None, episode: Episode) -> _Unassigned:
    first, last = acts[0].seq, episode.acts[-1].seq if until is None else until.seq
    topics = set[str]().union(*(act.topics for act in acts))
    came_back = (act for act in episode.of(CameBack) if first <= act.seq <= last and act.changed_topics)
    with_it = (act for act in came_back if topics & (act.topics or frozenset()))
    return _Unassigned(acts=tuple(acts), came_back=tuple(with_it), until=until)


def _claim(unassigned: _Unassigned, episode: Episode) -> IncidentClaim:
    began_ms = unassigned.acts[0].at_ms
    until_ms = episode.known_until_ms if unassigned.until is None else unassigned.until.at_ms
    members = tuple({act.member.name: act.member for act in unassigned.came_back}.values())
    return IncidentClaim(
        kind=KIND,
        acts=(),  # a restart or a deployment that caused it is an incident of its own
        culprits=members,
        grade=Grade.RECORDED if members else Grade.INFERRED,
        headline=_headline(unassigned, members, _until(unassigned, began_ms)),
        chain=tuple(_statements(unassigned)),
        advice=(_way_out(unassigned, episode),),
        at_ms=began_ms,
        until_ms=max(began_ms, until_ms or began_ms),
        unassigned_partition_ms=_partition_ms(unassigned, episode, until_ms or began_ms),
    )


def _partition_ms(unassigned: _Unassigned, episode: Episode, until_ms: int) -> int | None:
    """Return partitions times the time in which they were unassigned; None if it is not known for each topic."""
    costs = [_topic_ms(topic, unassigned, episode, until_ms) for topic in unassigned.topics]
    known = [each for each in costs if each is not None]
    return sum(known) if len(known) == len(costs) else None


def _topic_ms(topic: str, unassigned: _Unassigned, episode: Episode, until_ms: int) -> int | None:
    """Return the same for one topic, summed over the periods in which no member had its partitions.

    The rebalance that left them unassigned shows their number, and so does the first assignment that has them again.
    """
    total_ms, since = 0, None
    for act in unassigned.acts:
        if topic in act.topics:
            since = since or act
        elif since is not None:
            count = _partitions_of(topic, since, act, episode)
            if count is None:
                return None
            total_ms, since = total_ms + count * (act.at_ms - since.at_ms), None
    if since is None:
        return total_ms
    count = _partitions_of(topic, since, unassigned.until, episode)
    return None if count is None else total_ms + count * max(0, until_ms - since.at_ms)


def _partitions_of(topic: str, since: AnyAct, until: AnyAct | None, episode: Episode) -> int | None:
    """Return how many partitions members lost at the first act, or gained at the last one; None if not known."""
    lost, gained = _moves_in(since, episode), () if until is None else _moves_in(until, episode)
    moves = (*(each for each in lost if each.owner is None), *(each for each in gained if each.previous is None))
    numbers = {number for move in moves for of in move.partitions if of.topic == topic for number in of.partitions}
    return len(numbers) or None


def _moves_in(act: AnyAct, episode: Episode) -> tuple[PartitionMove, ...]:
    rebalance = episode.rebalance_of(act)
    return () if rebalance is None or rebalance.movement is None else rebalance.movement.moves


def _headline(unassigned: _Unassigned, members: Sequence[Member], until: str) -> str:
    topics = _named(unassigned.topics)
    assigned = "is" if len(unassigned.topics) == 1 else "are"
    if not members:
        return (
            f"{topics} {assigned} subscribed and assigned to no member{until}: there is no such topic, or the leader's"
            " client does not know of it"
        )
    return (
        f"{processes(members)} came back with another subscription, and the group did not rebalance: {topics}"
        f" {assigned} assigned to no member{until}"
    )


def _until(unassigned: _Unassigned, began_ms: int) -> str:
    if unassigned.until is None:
        return " so far"
    if isinstance(unassigned.until.event, GroupStabilized):
        return f", for {duration(unassigned.until.at_ms - began_ms)}, until the next assignment"
    return f", for {duration(unassigned.until.at_ms - began_ms)}, until the group was empty"


def _statements(unassigned: _Unassigned) -> Iterator[Statement]:
    for act in unassigned.came_back[:TOLD_MAX]:
        before = "" if act.before is None else f" instead of {topics_text(act.before)}"
        yield Statement(
            text=f"{process_name(act.member)} came back subscribed to {topics_text(act.member)}{before}, and was given"
            " the assignment that it had",
            grade=Grade.RECORDED,
            at=instant(act.at_ms),
            seqs=(act.seq,),
        )
    if not unassigned.came_back:
        first = unassigned.acts[0]
        yield Statement(
            text=f"the leader's assignment has no partition of {_named(unassigned.topics)}",
            grade=Grade.RECORDED,
            at=instant(first.at_ms),
            seqs=(first.seq,),
        )


def _way_out(unassigned: _Unassigned, episode: Episode) -> str:
    group_id = "GROUP" if episode.after is None else episode.after.group_id
    if unassigned.came_back:
        return (
            f"after static members were restarted with another subscription: muster members rebalance {group_id}; their"
            " clients do not ask for it, and some go on reading the old topics, or end with an error;"
            f" {UNASSIGNED_DELAY} makes Muster ask for it"
        )
    return (
        "check that the name of the topic is right and that it exists (standalone: muster serve --topic"
        " NAME:PARTITIONS); once it does, clients notice within their metadata.max.age.ms (5 min by default)"
    )


def _named(topics: Sequence[str]) -> str:
    return few(topics, noun="other topic")
