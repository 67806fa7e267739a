"""Compares what was acknowledged to members with the log, and with the committed offsets that the service returns."""

from collections.abc import Iterable, Mapping, Sequence, Set

import msgspec

from muster.drills.measuring.answers import Acknowledged, Place
from muster.events.ids import GroupId
from muster.events.state import GroupState
from muster.replay.history.items import Broken, Gap, Item
from muster.replay.history.transitions import Transition, Transitions


class LostCommit(msgspec.Struct, frozen=True, kw_only=True):
    """A commit that was acknowledged and is missing. `found`: the offset returned instead; None: there is none."""

    group_id: str
    partition: int
    acknowledged: int
    found: int | None


class Losses(msgspec.Struct, frozen=True, kw_only=True):
    """All that is missing. `gaps`: the missing parts of a group's history, by event number."""

    places: tuple[Place, ...]
    gaps: tuple[str, ...]
    commits: tuple[LostCommit, ...]

    @property
    def events(self) -> int:
        return len(self.places) + len(self.gaps)


def losses(
    acknowledged: Acknowledged,
    histories: Mapping[str, Sequence[Item]],
    offsets: Mapping[tuple[str, int], int],
) -> Losses:
    """Find what is missing. `histories`: the items of each group. `offsets`: as fetched at the end."""
    recorded = places_recorded(histories)
    return Losses(
        places=tuple(sorted(acknowledged.places - recorded, key=_in_order)),
        gaps=tuple(_gaps(histories)),
        commits=tuple(lost_commits(acknowledged.commits, offsets)),
    )


def _in_order(place: Place) -> tuple[str, int, str]:
    return place.group_id, place.generation_id, place.member_id


def places_recorded(histories: Mapping[str, Sequence[Item]]) -> Set[Place]:
    """Return every membership in the log, at any time, with and without the assignment."""
    found: set[Place] = set()
    for group_id, items in histories.items():
        for step in Transitions(GroupId(group_id)).steps(items):
            if isinstance(step, Transition):
                found.update(_places_after(step))
    return found


def _places_after(step: Transition) -> Iterable[Place]:
    group = step.after
    for member_id, member in group.members.items():
        place = Place(group_id=group.group_id, generation_id=group.generation_id, member_id=member_id)
        yield place
        if group.state is GroupState.STABLE:
            yield msgspec.structs.replace(place, assignment=group.assignment_of(member))


def lost_commits(
    acknowledged: Mapping[tuple[str, int], int], offsets: Mapping[tuple[str, int], int]
) -> Iterable[LostCommit]:
    """Return the partitions whose offset is lower than an acknowledged one; members commit ever higher offsets."""
    for (group_id, partition), offset in sorted(acknowledged.items()):
        found = offsets.get((group_id, partition))
        if found is None or found < offset:
            yield LostCommit(group_id=group_id, partition=partition, acknowledged=offset, found=found)


def _gaps(histories: Mapping[str, Sequence[Item]]) -> Iterable[str]:
    for group_id, items in sorted(histories.items()):
        for each in items:
            if isinstance(each, Gap):
                yield f"group {group_id}: events {each.first_seq} to {each.last_seq} are not in the log"
            elif isinstance(each, Broken):
                yield f"group {group_id}: a record at offset {each.position.offset} cannot be read: {each.reason}"
