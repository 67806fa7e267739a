"""Members that rejoined with other topics."""

from collections.abc import Iterator

from muster.replay.incidents.episode.acts import Rejoined, topics_text
from muster.replay.incidents.kinds.changed import claim_changes
from muster.replay.incidents.kinds.kind import EpisodeView, IncidentClaim, Kind

KIND = Kind(
    "subscription-change",
    "Members that stayed subscribed to other topics.",
    "the members that changed their subscription",
)


_ADVICE = (
    "nothing to do if this was meant, or if a new topic matches the pattern of the subscription; if not, look at"
    " where the application calls subscribe(). A topic that only some members subscribe is consumed by these alone"
)


def find(view: EpisodeView) -> Iterator[IncidentClaim]:
    changed = [act for act in view.free(Rejoined) if act.changed_topics]
    return claim_changes(KIND, changed, "subscribed to other topics", topics_text, _ADVICE)
