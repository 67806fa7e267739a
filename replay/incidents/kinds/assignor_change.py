"""Members that stayed, and came with other assignors."""

from collections.abc import Iterator

from muster.replay.incidents.episode.acts import Rejoined, members_of, protocols_of
from muster.replay.incidents.evidence.naming import processes
from muster.replay.incidents.grade import Grade
from muster.replay.incidents.kinds.kind import Claim, Kind, View

KIND = Kind("assignor-change", "Members changed their list of assignors.", "the members that changed it")


def find(view: View) -> Iterator[Claim]:
    changed = [act for act in view.free(Rejoined) if act.changed_protocols]
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
            f"{processes(members)} came with other assignors: {', '.join(protocols_of(first.member))} instead of"
            f" {', '.join(protocols_of(first.before))}"
        ),
    )
