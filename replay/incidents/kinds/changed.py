"""The part that the kinds about members which came with something else share."""

from collections.abc import Callable, Iterator, Sequence

from muster.events.state import Member
from muster.replay.incidents.episode.acts import Rejoined, members_of
from muster.replay.incidents.evidence.naming import processes
from muster.replay.incidents.grade import Grade
from muster.replay.incidents.kinds.kind import IncidentClaim, Kind


def claim_changes(
    kind: Kind, changed: Sequence[Rejoined], came: str, with_what: Callable[[Member], str]
) -> Iterator[IncidentClaim]:
    """Claim the changes of all these members as one; `came` and `with_what` word the first one's."""
    if not changed:
        return
    members, first = members_of(changed), changed[0]
    assert first.before is not None
    yield IncidentClaim(
        kind=kind,
        acts=tuple(changed),
        culprits=members,
        grade=Grade.RECORDED,
        headline=f"{processes(members)} {came}: {with_what(first.member)} instead of {with_what(first.before)}",
    )
