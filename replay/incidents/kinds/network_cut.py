"""Several members that fell silent at the same time."""

import math
from collections.abc import Hashable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from typing import Final

from muster.events.ids import MemberId
from muster.events.state import Member
from muster.replay.incidents.episode.acts import AnyAct, Came, CameBack, Departure, Went
from muster.replay.incidents.episode.replacements import Replacement
from muster.replay.incidents.evidence.connection_ends import Ending, ending
from muster.replay.incidents.evidence.naming import common_network, processes
from muster.replay.incidents.evidence.session_timeout import shorter_sessions
from muster.replay.incidents.evidence.silence import silences
from muster.replay.incidents.grade import Grade
from muster.replay.incidents.kinds.deployment import deployments
from muster.replay.incidents.kinds.kind import EpisodeView, IncidentClaim, Kind
from muster.replay.incidents.windows import SAME_MOMENT_MS
from muster.replay.text.grammar import plural

IN_COMMON: Final = "look at the network and at the machines that these have in common"
TO_COORDINATOR: Final = "look at the network between the members and the coordinator"

KIND = Kind(
    "network-cut",
    "Two or more members fell silent at the same moment without leaving, and others did not, or some were heard again."
    " Their connections were not closed from their side.",
    "the members that fell silent",
)


def find(view: EpisodeView) -> Iterator[IncidentClaim]:
    back = view.returns()
    expired = (act for act in view.free(Went) if act.how is Departure.EXPIRED)
    seen = (
        act
        for act in expired
        if view.episode.silence_of(act).is_known and ending(view.episode, act) is not Ending.ENDED
    )
    silent = sorted(seen, key=lambda act: act.last_seen_ms)
    for together in _fallen_together(view, silent):
        members = [act.member for act in together]
        others = view.episode.members_at(together[0].at_ms) - {member.member_id for member in members}
        others -= _came_back_from(view, together)
        returned = [back[act.seq] for act in together if act.seq in back]
        lived = [each for each in members if each.member_id in view.episode.heard_again]
        if len(together) < 2 or not (lived or (others and _were_away(returned) and not _are_deployed(view, together))):
            continue
        acts: list[AnyAct] = [*together, *(each.came for each in returned if isinstance(each.came, Came))]
        yield IncidentClaim(
            kind=KIND,
            acts=tuple(sorted(acts, key=lambda act: act.seq)),
            culprits=tuple(members),
            grade=Grade.INFERRED,
            headline=_told(view, members, others, returned=len(returned), lived=len(lived)),
            chain=tuple(silences(view.episode, together)),
            advice=(IN_COMMON if others else TO_COORDINATOR, *shorter_sessions(view.episode, together)),
        )


def _told(
    view: EpisodeView, members: Sequence[Member], others: AbstractSet[MemberId], *, returned: int, lived: int
) -> str:
    """Return the headline. `returned`: how many came back; `lived`: how many had not died; `others`: members that did
    not fall silent.
    """
    where = _where(members, [each for other in others if (each := view.episode.member(other)) is not None])
    if others:
        count = plural(len(others), "other")
        who = f"{len(members)} members fell silent at the same moment{where}, and {count} did not"
    else:
        who = f"all {len(members)} members fell silent at the same moment{where}"
    again = f"; {'all' if returned == len(members) else f'{returned} of them'} came back" if returned else ""
    if others or not lived:
        return f"{who}: {processes(members)}{again}"
    count = "they" if lived == len(members) else f"{lived} of them at least"
    cut = f"{count} had not died, but were cut off from the coordinator or stalled"
    return f"{who}: {processes(members)}{again}; {cut}"


def _where(members: Sequence[Member], others: Sequence[Member]) -> str:
    """Return the silent members' network, unless other members are in it, too: behind a sidecar all have one
    address.
    """
    network = common_network(members)
    is_common = network is None or network == common_network([*members, *others])
    return "" if (others and is_common) or network is None else f", all from {network}"


def _came_back_from(view: EpisodeView, together: list[Went]) -> set[MemberId]:
    """Return static members that fell silent at the same time and came back before they were removed."""
    from_ms = together[0].last_seen_ms - SAME_MOMENT_MS
    until_ms = together[-1].last_seen_ms + SAME_MOMENT_MS
    return {
        member_id
        for act in view.free(CameBack)
        if from_ms <= act.last_seen_ms <= until_ms
        for member_id in (act.member.member_id, act.replaced_member_id)
    }


def _were_away(returned: Sequence[Replacement]) -> bool:
    """Return whether none of them came back before it was removed, as a restarted process would."""
    return all(each.went is not None and each.came.at_ms >= each.went.at_ms for each in returned)


def _are_deployed(view: EpisodeView, together: Sequence[Went]) -> bool:
    """Return whether those that came back are part of a deployment with other processes."""
    ids = {act.member.member_id for act in together}
    for run, _ in deployments(view):
        former_ids = {each.former_id for each in run}
        if former_ids & ids and former_ids - ids:
            return True
    return False


def _fallen_together(view: EpisodeView, silent: Sequence[Went]) -> Iterator[list[Went]]:
    """Yield the sets of members that fell silent at the same time, in order.

    A member that joined after one of them had been removed does not belong to them, nor does a process that is already
    among them under an earlier member id.
    """
    together: list[Went] = []
    processes: set[Hashable] = set()
    missed_ms: float = math.inf
    for act in silent:
        came_ms, process = view.episode.came_ms(act.member.member_id), view.episode.process_of(act.member).key
        is_late = bool(together) and act.last_seen_ms - together[0].last_seen_ms > SAME_MOMENT_MS
        if is_late or process in processes or (came_ms is not None and came_ms > missed_ms):
            yield together
            together, processes, missed_ms = [], set(), math.inf
        together.append(act)
        processes.add(process)
        missed_ms = min(missed_ms, act.at_ms)
    if together:
        yield together
