"""Members that rejoined with other assignors."""

from collections.abc import Iterator

from muster.replay.incidents.episode.acts import Rejoined, protocols_of
from muster.replay.incidents.kinds.changed import claim_changes
from muster.replay.incidents.kinds.kind import EpisodeView, IncidentClaim, Kind

KIND = Kind("assignor-change", "Members changed their list of assignors.", "the members that changed it")


_ADVICE = (
    "nothing to do if partition.assignment.strategy is being changed: the group uses a new assignor once all members"
    " offer it; if nobody changes it, look at the config of these members"
)


def find(view: EpisodeView) -> Iterator[IncidentClaim]:
    changed = [act for act in view.free(Rejoined) if act.changed_protocols]
    return claim_changes(
        KIND, changed, "rejoined with other assignors", lambda member: ", ".join(protocols_of(member)), _ADVICE
    )
