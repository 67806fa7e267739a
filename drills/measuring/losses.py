"""Compares what was acknowledged to members with what is in the log, and with the offsets that are fetched."""

from collections.abc import Iterable, Mapping, Sequence, Set

import msgspec

from muster.drills.measuring.answers import Acknowledged, Place
from muster.events.ids import GroupId
from muster.events.state import GroupState
from muster.replay.history.items import Broken, Gap, Item
from muster.replay.history.transitions import Transition, Transitions


class LostCommit(msgspec.Struct, frozen=True, kw_only=True):
    """An offset that was acknowledged and is not there. `found`: what is there instead, None for nothing."""

    group_id: str
    partition: int
    acknowledged: int
    found: int | None


class Losses(msgspec.Struct, frozen=True, kw_only=True):
    """All that is missing: nothing, if all is well. `gaps`: parts of a history that the log lacks, by their numbers."""

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
    """Compare. `histories`: the items of each group, `offsets`: what is fetched by group and partition, at the end."""
    recorded = places_recorded(histories)
    return Losses(
        places=tuple(sorted(acknowledged.places - recorded, key=_in_order)),
        gaps=tuple(_gaps(histories)),
        commits=tuple(lost_commits(acknowledged.commits, offsets)),
    )


def _in_order(place: Place) -> tuple[str, int, str]:
    return place.group_id, place.generation_id, place.member_id


def places_recorded(histories: Mapping[str, Sequence[Item]]) -> Set[Place]:
    """Every place that members had at any moment, with and without the assignment, as the log tells."""
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
    """The partitions whose offset is lower than one that was acknowledged; members commit higher ones each time."""
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
