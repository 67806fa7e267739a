"""Members that another client removed."""

from collections.abc import Iterator, Sequence
from itertools import groupby

from muster.events.events import Why
from muster.events.ids import MemberId
from muster.replay.incidents.episode.acts import AnyAct, Came, CameBack, Departure, Went
from muster.replay.incidents.episode.episode import Episode
from muster.replay.incidents.evidence.naming import process_name, processes
from muster.replay.incidents.grade import Grade
from muster.replay.incidents.incident import Statement
from muster.replay.incidents.kinds.kind import EpisodeView, IncidentClaim, Kind
from muster.replay.rebalances.rebalance import MemberRef, Outcome
from muster.replay.rebalances.wording import asked_by, host, says_something
from muster.replay.text.times import instant

KIND = Kind(
    "removed-by-admin",
    "A client other than the members asked for their removal.",
    "the client that asked, by its client id and host; the members that were removed are `affected`",
)


def find(view: EpisodeView) -> Iterator[IncidentClaim]:
    removed = [act for act in view.free(Went) if act.how is Departure.REMOVED]
    back = view.returns() if removed else {}
    for _, together in groupby(removed, key=lambda act: (act.at_ms, act.why.client_id, act.why.client_host)):
        went = list(together)
        members = [act.member for act in went]
        verb = "was" if len(went) == 1 else "were"
        text = f"{processes(members)} {verb} removed{asked_by(went[0].why)}"
        if says_something(went[0].why.client_reason):
            text += f': "{went[0].why.client_reason}"'
        returned = [back[act.seq].came for act in went if act.seq in back]
        if _emptied(went[-1], view.episode):
            text += "; the group was then empty"
        acts: list[AnyAct] = sorted([*went, *returned], key=lambda act: act.seq)
        yield IncidentClaim(
            kind=KIND,
            acts=tuple(acts),
            culprits=_who_asked(went[0].why),
            affected=tuple(members),
            began_ms=went[0].at_ms,
            grade=Grade.RECORDED,
            headline=text,
            chain=(*_removals(went), *_returns(returned)),
            advice=tuple(_advice(went, returned)),
        )


def _emptied(last: Went, episode: Episode) -> bool:
    """Return whether the group was empty after this departure."""
    rebalance = episode.rebalance_of(last)
    if rebalance is None or rebalance.outcome is not Outcome.EMPTIED:
        return False
    return not any(isinstance(act, Went) and act.seq > last.seq for act in episode.within(rebalance))


def _advice(went: Sequence[Went], returned: Sequence[Came | CameBack]) -> Iterator[str]:
    if returned:
        yield (
            "a removed member whose process still runs joins again, and the group rebalances twice: stop the process"
            " first, and remove only members that are gone"
        )
    why = went[0].why
    who = "which client asked" if why.client_id is None else f"what runs as client {why.client_id}{_at(why)}"
    yield (
        f"if this was not intended: find out {who}; every client that may read from the group (READ on the group) may"
        " remove its members"
    )


def _at(why: Why) -> str:
    return f" at {host(why.client_host)}" if why.client_host else ""


def _who_asked(why: Why) -> tuple[MemberRef, ...]:
    """Return the administrator's client, which is not a member; empty if it is not recorded."""
    if why.client_id is None:
        return ()
    return (
        MemberRef(
            member_id=MemberId(""),
            group_instance_id=None,
            client_id=why.client_id,
            client_host=why.client_host or "",
        ),
    )


def _removals(went: Sequence[Went]) -> Iterator[Statement]:
    for act in went:
        yield Statement(
            text=f"{process_name(act.member)} was removed{asked_by(act.why)}",
            grade=Grade.RECORDED,
            at=instant(act.at_ms),
            seqs=(act.seq,),
        )


def _returns(returned: Sequence[Came | CameBack]) -> Iterator[Statement]:
    for act in returned:
        yield Statement(
            text=f"{process_name(act.member)} came back", grade=Grade.INFERRED, at=instant(act.at_ms), seqs=(act.seq,)
        )
