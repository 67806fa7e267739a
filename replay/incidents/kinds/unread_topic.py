"""A topic that members subscribe and that is assigned to nobody: no rebalance came for it, or none that helped.

A static member that comes back with another subscription makes nobody rebalance, as in Kafka. A leader assigns nothing
of a topic that does not exist, or that its client does not know.
"""

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from muster.events.events import GroupDeleted, GroupEmptied, GroupStabilized
from muster.events.state import Member
from muster.replay.incidents.episode.acts import CameBack, Phase, TopicsUnread, topics_text
from muster.replay.incidents.episode.episode import Episode
from muster.replay.incidents.evidence.naming import NAMED_MAX, process_name, processes
from muster.replay.incidents.grade import Grade
from muster.replay.incidents.incident import Statement
from muster.replay.incidents.kinds.kind import EpisodeView, IncidentClaim, Kind
from muster.replay.incidents.windows import UNREAD_MS
from muster.replay.rebalances.wording import listed, plural
from muster.replay.times import duration, instant

KIND = Kind(
    "unread-topic",
    "Members subscribe a topic, and nobody is assigned any of it: a static member came back with it and nobody"
    " rebalanced, or the leader assigned nothing of it.",
    "the static members that came back with it; else none",
)

TOLD_MAX: Final = 20
"""The members that have a statement each."""


class _Unread(msgspec.Struct, frozen=True, kw_only=True):
    """From when to when topics had no consumer; `until`: None: nothing has assigned them so far."""

    acts: tuple[TopicsUnread, ...]
    came_back: tuple[CameBack, ...]
    until: Phase | None

    @property
    def topics(self) -> list[str]:
        return sorted(set[str]().union(*(act.topics for act in self.acts)))


def find(view: EpisodeView) -> Iterator[IncidentClaim]:
    for unread in _spans(view.episode):
        yield _claim(unread, view.episode)


def _spans(episode: Episode) -> Iterator[_Unread]:
    """The times in which a topic was unread, but for the short ones: a client may learn of its topics late."""
    acts: list[TopicsUnread] = []
    by_seq = {act.seq for act in episode.of(TopicsUnread)}
    both: list[TopicsUnread | Phase] = [*episode.of(TopicsUnread), *episode.of(Phase)]
    for act in sorted(both, key=lambda act: act.seq):
        if isinstance(act, TopicsUnread):
            acts.append(act)
        elif acts and _ends_it(act, by_seq):
            if act.at_ms - acts[0].at_ms >= UNREAD_MS:
                yield _unread(acts, act, episode)
            acts = []
    if acts:
        yield _unread(acts, None, episode)


def _ends_it(act: Phase, unread_seqs: set[int]) -> bool:
    if isinstance(act.event, GroupEmptied | GroupDeleted):
        return True
    return isinstance(act.event, GroupStabilized) and act.seq not in unread_seqs


def _unread(acts: Sequence[TopicsUnread], until: Phase | None, episode: Episode) -> _Unread:
    first, last = acts[0].seq, episode.acts[-1].seq if until is None else until.seq
    topics = set[str]().union(*(act.topics for act in acts))
    came_back = (act for act in episode.of(CameBack) if first <= act.seq <= last and act.changed_topics)
    with_it = (act for act in came_back if topics & (act.topics or frozenset()))
    return _Unread(acts=tuple(acts), came_back=tuple(with_it), until=until)


def _claim(unread: _Unread, episode: Episode) -> IncidentClaim:
    began_ms = unread.acts[0].at_ms
    until_ms = episode.known_until_ms if unread.until is None else unread.until.at_ms
    members = tuple({act.member.name: act.member for act in unread.came_back}.values())
    return IncidentClaim(
        kind=KIND,
        acts=(),  # a restart, or a deployment, that it came by is told as such
        culprits=members,
        grade=Grade.RECORDED if members else Grade.INFERRED,
        headline=_headline(unread, members, _until(unread, began_ms)),
        chain=tuple(_statements(unread)),
        advice=(_way_out(unread, episode),),
        at_ms=began_ms,
        until_ms=max(began_ms, until_ms or began_ms),
    )


def _headline(unread: _Unread, members: Sequence[Member], until: str) -> str:
    topics = _named(unread.topics)
    assigned = "is" if len(unread.topics) == 1 else "are"
    if not members:
        return (
            f"{topics} {assigned} subscribed and assigned to nobody{until}: there is no such topic, or the leader's"
            " client does not know of it"
        )
    return (
        f"{processes(members)} came back with another subscription, and nobody rebalanced: {topics} {assigned} assigned"
        f" to nobody{until}"
    )


def _until(unread: _Unread, began_ms: int) -> str:
    if unread.until is None:
        return " so far"
    if isinstance(unread.until.event, GroupStabilized):
        return f", for {duration(unread.until.at_ms - began_ms)}, until the next assignment"
    return f", for {duration(unread.until.at_ms - began_ms)}, until the group was empty"


def _statements(unread: _Unread) -> Iterator[Statement]:
    for act in unread.came_back[:TOLD_MAX]:
        before = "" if act.before is None else f" instead of {topics_text(act.before)}"
        yield Statement(
            text=f"{process_name(act.member)} came back subscribed to {topics_text(act.member)}{before}, and was given"
            " the assignment that it had",
            grade=Grade.RECORDED,
            at=instant(act.at_ms),
            seqs=(act.seq,),
        )
    if not unread.came_back:
        first = unread.acts[0]
        yield Statement(
            text=f"the leader's assignment has no partition of {_named(unread.topics)}",
            grade=Grade.RECORDED,
            at=instant(first.at_ms),
            seqs=(first.seq,),
        )


def _way_out(unread: _Unread, episode: Episode) -> str:
    group_id = "GROUP" if episode.after is None else episode.after.group_id
    if unread.came_back:
        return (
            f"after static members were restarted with another subscription: muster members rebalance {group_id}; their"
            " clients do not ask for it, and some go on reading the old topics, or end with an error"
        )
    return (
        "see whether the name of the topic is right, and whether it exists (standalone: muster serve --topic"
        " NAME:PARTITIONS); once it does, clients notice within their metadata.max.age.ms (5 min by default)"
    )


def _named(topics: Sequence[str]) -> str:
    if len(topics) > NAMED_MAX:
        return listed([*topics[:NAMED_MAX], plural(len(topics) - NAMED_MAX, "other topic")])
    return listed(topics)
