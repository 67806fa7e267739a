"""Several members that fell silent at the same moment."""

from collections.abc import Iterator, Sequence

from muster.events.ids import MemberId
from muster.replay.incidents.episode.acts import AnyAct, Came, CameBack, Departure, Went
from muster.replay.incidents.episode.replacements import Replacement
from muster.replay.incidents.evidence.naming import common_network, processes
from muster.replay.incidents.evidence.silence import silences
from muster.replay.incidents.grade import Grade
from muster.replay.incidents.kinds.deployment import deployments
from muster.replay.incidents.kinds.kind import EpisodeView, IncidentClaim, Kind
from muster.replay.incidents.runs import runs
from muster.replay.incidents.windows import SAME_MOMENT_MS
from muster.replay.rebalances.wording import plural

KIND = Kind(
    "network-cut",
    "Two or more members fell silent at the same moment without leaving, and others did not.",
    "the members that fell silent",
)


def find(view: EpisodeView) -> Iterator[IncidentClaim]:
    back = view.returns()
    expired = (act for act in view.free(Went) if act.how is Departure.EXPIRED)
    seen = (act for act in expired if view.episode.silence_of(act).is_known)
    silent = sorted(seen, key=lambda act: act.last_seen_ms)
    for together in runs(silent, _is_same_moment):
        members = [act.member for act in together]
        others = view.episode.members_at(together[0].at_ms) - {member.member_id for member in members}
        others -= _came_back_from(view, together)
        returned = [back[act.seq] for act in together if act.seq in back]
        if len(together) < 2 or not others or any(each.came.at_ms < each.went_ms for each in map(_Return, returned)):
            continue
        if _are_deployed(view, together):
            continue
        network = common_network(members)
        where = f", all from {network}" if network is not None else ""
        count = "all" if len(returned) == len(together) else f"{len(returned)} of them"
        again = f"; {count} came back" if returned else ""
        acts: list[AnyAct] = [*together, *(each.came for each in returned if isinstance(each.came, Came))]
        yield IncidentClaim(
            kind=KIND,
            acts=tuple(sorted(acts, key=lambda act: act.seq)),
            culprits=tuple(members),
            grade=Grade.INFERRED,
            headline=(
                f"{len(together)} members fell silent at the same moment{where}, and {plural(len(others), 'other')} did"
                f" not: {processes(members)}{again}"
            ),
            chain=tuple(silences(view.episode, together)),
            advice=("look at the network and at the machines that these have in common",),
        )


def _came_back_from(view: EpisodeView, together: list[Went]) -> set[MemberId]:
    """Static members that had fallen silent with them, and came back before they were missed."""
    from_ms = together[0].last_seen_ms - SAME_MOMENT_MS
    until_ms = together[-1].last_seen_ms + SAME_MOMENT_MS
    return {
        member_id
        for act in view.free(CameBack)
        if from_ms <= act.last_seen_ms <= until_ms
        for member_id in (act.member.member_id, act.replaced_member_id)
    }


def _are_deployed(view: EpisodeView, together: Sequence[Went]) -> bool:
    """Whether others were replaced before or after those of them who came back, and none is known not to have died."""
    if any(act.member.member_id in view.episode.heard_again for act in together):
        return False
    ids = {act.member.member_id for act in together}
    for run, _ in deployments(view):
        former_ids = {each.former_id for each in run}
        if former_ids & ids and former_ids - ids:
            return True
    return False


class _Return:
    """A replacement, with the moment of its member's end."""

    def __init__(self, replacement: Replacement) -> None:
        assert replacement.went is not None
        self.came = replacement.came
        self.went_ms = replacement.went.at_ms


def _is_same_moment(together: list[Went], act: Went) -> bool:
    return act.last_seen_ms - together[0].last_seen_ms <= SAME_MOMENT_MS
