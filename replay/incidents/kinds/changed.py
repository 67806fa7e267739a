"""Shared by the kinds about members that rejoined with a change."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence

from muster.events.state import Member
from muster.replay.incidents.episode.acts import Rejoined, members_of
from muster.replay.incidents.evidence.naming import processes
from muster.replay.incidents.grade import Grade
from muster.replay.incidents.kinds.kind import IncidentClaim, Kind
from muster.replay.rebalances.wording import clients_say, is_of_application


def claim_changes(
    kind: Kind, changed: Sequence[Rejoined], came: str, with_what: Callable[[Member], str], advice: str
) -> Iterator[IncidentClaim]:
    """Claim the same change of several members as one; `came` and `with_what` are for its headline."""
    same: defaultdict[str, list[Rejoined]] = defaultdict(list)
    for act in changed:
        assert act.before is not None
        same[f"{with_what(act.member)} instead of {with_what(act.before)}"].append(act)
    for what, acts in same.items():
        members = members_of(acts)
        yield IncidentClaim(
            kind=kind,
            acts=tuple(acts),
            culprits=members,
            grade=Grade.RECORDED,
            headline=f"{processes(members)} {came}: {what}{_words(acts)}",
            advice=(advice,),
        )


def _words(acts: Sequence[Rejoined]) -> str:
    """Quote reasons that the applications gave."""
    own = [act.why.client_reason for act in acts if is_of_application(act.why.client_reason)]
    return f"; {clients_say(own)}" if own else ""
