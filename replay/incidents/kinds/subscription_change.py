"""Members that stayed, and subscribed other topics."""

from collections.abc import Iterator

from muster.events.state import Member
from muster.replay.incidents.acts import Rejoined, topics_of
from muster.replay.incidents.grade import Grade
from muster.replay.incidents.kinds.kind import Claim, Kind, View
from muster.replay.incidents.naming import processes

KIND = Kind(
    "subscription-change", "Members that stayed subscribed other topics.", "the members that changed their subscription"
)


def _topics(member: Member) -> str:
    topics = topics_of(member)
    return "topics that cannot be read" if topics is None else ", ".join(sorted(topics)) or "no topic"


def find(view: View) -> Iterator[Claim]:
    changed = [act for act in view.free(Rejoined) if act.changed_topics]
    if not changed:
        return
    members = _members(changed)
    first = changed[0]
    assert first.before is not None
    yield Claim(
        kind=KIND,
        acts=tuple(changed),
        culprits=members,
        grade=Grade.RECORDED,
        headline=(
            f"{processes(members)} subscribed other topics: {_topics(first.member)} instead of {_topics(first.before)}"
        ),
    )


def _members(acts: list[Rejoined]) -> tuple[Member, ...]:
    return tuple({act.member.member_id: act.member for act in acts}.values())
