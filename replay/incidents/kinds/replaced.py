"""The parts that kinds about replaced processes share."""

import math
from collections.abc import Iterator, Sequence

from muster.events.state import Member
from muster.replay.incidents.episode.acts import AnyAct, CameBack, Departure, Duelled, Went
from muster.replay.incidents.episode.episode import Episode
from muster.replay.incidents.episode.replacements import Replacement
from muster.replay.incidents.grade import Grade
from muster.replay.incidents.incident import Statement
from muster.replay.rebalances.wording import host, plural
from muster.replay.times import instant


def acts_of(replacements: Sequence[Replacement]) -> tuple[AnyAct, ...]:
    return tuple(sorted((act for each in replacements for act in each.acts), key=lambda act: act.seq))


def members_of(replacements: Sequence[Replacement]) -> tuple[Member, ...]:
    """Every member by which these processes were in the group, gone and new."""
    members = {act.member.member_id: act.member for each in replacements for act in each.acts}  # type: ignore[union-attr]
    return tuple(members.values())


def grade_of(replacements: Sequence[Replacement]) -> Grade:
    """The worst of them: a story is no better known than its parts."""
    grades = {each.process.grade for each in replacements}
    return next(grade for grade in (Grade.UNKNOWN, Grade.INFERRED, Grade.RECORDED) if grade in grades)


def how_it_went(went: Went | None) -> str:
    if went is None:
        return "came back under a new member id"
    if went.how is Departure.LEFT:
        return "left and came back"
    return "was not heard from and came back"


def fenced_before(episode: Episode, replacements: Sequence[Replacement]) -> Iterator[Statement]:
    """Other processes that were alive under an instance id that was taken: their requests were fenced."""
    contested = {act.why.group_instance_id for act in episode.of(Duelled) if not act.is_duel}
    for each in replacements:
        if not isinstance(each.came, CameBack) or each.came.member.group_instance_id not in contested:
            continue
        instance, from_seq = each.came.member.group_instance_id, each.came.seq
        taken = (act.seq for act in episode.of(CameBack) if act.member.group_instance_id == instance)
        until_seq = min((seq for seq in taken if seq > from_seq), default=math.inf)
        fenced = [
            act
            for act in episode.of(Duelled)
            if not act.is_duel and act.why.group_instance_id == instance and from_seq < act.seq < until_seq
        ]
        times = sum(act.times for act in fenced)
        if fenced:
            yield Statement(
                text=(
                    f"another process with the instance id '{instance}' was alive, at"
                    f" {host(fenced[0].why.client_host or '')}: {plural(times, 'request')} of it"
                    f" {'was' if times == 1 else 'were'} fenced"
                ),
                grade=Grade.RECORDED,
                at=instant(fenced[0].at_ms),
                seqs=tuple(act.seq for act in fenced),
            )


def advice_on(run: Sequence[Replacement]) -> tuple[str, ...]:
    if any(each.process.grade is not Grade.RECORDED for each in run):
        return (
            "with a group.instance.id each, and a session timeout above the time of a restart, none would rebalance",
        )
    slow = [each for each in run if each.went is not None and each.went.how is Departure.EXPIRED]
    if slow:
        return ("the session timeout is shorter than the restarts: a longer one would have absorbed them",)
    return ()
