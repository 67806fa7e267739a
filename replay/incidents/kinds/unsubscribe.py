"""Members that left on their own and came back, although their processes kept running: they had unsubscribed.

The Java client sends that as its reason. librdkafka does not, but a static member's LeaveGroup is evidence in itself:
none of the client families that were tested sends one for a static member that is closed or polls too late. A dynamic
member that comes back on its connection polled too late or was unsubscribed; its time in the group may show which.
"""

from collections.abc import Iterator, Sequence

from muster.events.state import Member
from muster.replay.incidents.episode.acts import Departure, Went
from muster.replay.incidents.episode.replacements import Replacement
from muster.replay.incidents.evidence.naming import process_name, processes
from muster.replay.incidents.evidence.poll_interval import may_have_polled_late, polled_in_time
from muster.replay.incidents.grade import Grade, at_best
from muster.replay.incidents.incident import Statement
from muster.replay.incidents.kinds.kind import EpisodeView, IncidentClaim, Kind
from muster.replay.incidents.kinds.replaced import acts_of, grade_of, later, members_of
from muster.replay.incidents.kinds.scaling import changes_of_size
from muster.replay.rebalances.wording import clients_say, is_close, says_something
from muster.replay.text.times import duration, instant

KIND = Kind(
    "unsubscribe",
    "Members left by themselves and came back: their applications had unsubscribed them, or a client had removed them.",
    "the members that left",
)

_SAYS_UNSUBSCRIBED = "the consumer unsubscribed"
"""The Java client's reason (KIP-800)."""

_WHO_REMOVES = "if its application did not unsubscribe it: see who removes members by their ids, from its host"


def find(view: EpisodeView) -> Iterator[IncidentClaim]:
    back = view.returns()
    went = [act for act in view.free(Went) if act.seq in back and _is_unsubscribed(view, back[act.seq], act)]
    for run in changes_of_size(went):
        yield _claim(view, [back[act.seq] for act in run], run)


def _is_unsubscribed(view: EpisodeView, each: Replacement, went: Went) -> bool:
    reason = went.why.client_reason
    if went.how is not Departure.LEFT:
        return False
    if says_something(reason):
        return (reason or "").startswith(_SAYS_UNSUBSCRIBED)
    if went.member.group_instance_id is not None:
        return not is_close(reason)
    return each.on_same_connection and not may_have_polled_late(view.episode, each)


def _claim(view: EpisodeView, run: Sequence[Replacement], went: Sequence[Went]) -> IncidentClaim:
    say_so = all(says_something(act.why.client_reason) for act in went)
    return IncidentClaim(
        kind=KIND,
        acts=acts_of(run),
        culprits=members_of(run),
        grade=grade_of(run) if say_so else at_best(Grade.INFERRED, grade_of(run)),
        headline=f"{_who([act.member for act in went], run)}{_why(run, went, say_so=say_so)}",
        chain=tuple(told for each, act in zip(run, went, strict=True) for told in _evidence(view, each, act)),
        advice=() if say_so or _went_on(run) else (_WHO_REMOVES,),
    )


def _who(members: Sequence[Member], run: Sequence[Replacement]) -> str:
    if len(run) == 1:
        return f"{process_name(members[0])} left and came back {later(run[0])}"
    span_ms = max(each.end_ms for each in run) - min(each.begin_ms for each in run)
    return f"{len(run)} members left by themselves and came back, within {duration(span_ms)}: {processes(members)}"


def _went_on(run: Sequence[Replacement]) -> bool:
    """Return whether each of them came back on the same connection."""
    return all(each.on_same_connection for each in run)


def _why(run: Sequence[Replacement], went: Sequence[Went], *, say_so: bool) -> str:
    if say_so:
        return f"; {clients_say(act.why.client_reason for act in went)}"
    if _went_on(run):
        return (
            ", on the same connection: its application unsubscribed, and subscribed again"
            if len(run) == 1
            else (", each on the connection that it had: their applications unsubscribed, and subscribed again")
        )
    return ": no client leaves for a static member that is closed or polls too late, so it was unsubscribed, or removed"


def _evidence(view: EpisodeView, each: Replacement, went: Went) -> Iterator[Statement]:
    yield Statement(
        text=f"{process_name(went.member)} sent LeaveGroup for itself",
        grade=Grade.RECORDED,
        at=instant(went.at_ms),
        seqs=(went.seq,),
    )
    if went.member.group_instance_id is None and not says_something(went.why.client_reason):
        yield from polled_in_time(view.episode, each)
    yield Statement(
        text=f"{process_name(each.came.member)} joined under a new member id",
        grade=Grade.RECORDED,
        at=instant(each.came.at_ms),
        seqs=(each.came.seq,),
    )
