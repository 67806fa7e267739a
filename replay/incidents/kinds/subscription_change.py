"""Members that stayed, and subscribed other topics."""

from collections.abc import Iterator

from muster.replay.incidents.episode.acts import Rejoined, members_of, topics_text
from muster.replay.incidents.evidence.naming import processes
from muster.replay.incidents.grade import Grade
from muster.replay.incidents.kinds.kind import Claim, Kind, View

KIND = Kind(
    "subscription-change", "Members that stayed subscribed other topics.", "the members that changed their subscription"
)


def find(view: View) -> Iterator[Claim]:
    changed = [act for act in view.free(Rejoined) if act.changed_topics]
    if not changed:
        return
    members = members_of(changed)
    first = changed[0]
    assert first.before is not None
    yield Claim(
        kind=KIND,
        acts=tuple(changed),
        culprits=members,
        grade=Grade.RECORDED,
        headline=(
            f"{processes(members)} subscribed other topics: {topics_text(first.member)} instead of"
            f" {topics_text(first.before)}"
        ),
    )
