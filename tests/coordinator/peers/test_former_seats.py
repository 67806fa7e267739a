"""Why a former owner owns a partition no more: told of what processes have seen and decided, never guessed."""

from collections.abc import Mapping

import msgspec
import pytest

from muster.coordinator.cluster import Node
from muster.coordinator.peers.former_seats import SEEN_MAX, FormerSeats
from muster.coordinator.peers.sharing import Seat, SeenGone, Sharing
from muster.events.ownership import OwnershipEnd, OwnershipEndCause

A, B, C, OWN = "a:1", "b:2", "c:3", "own:9"


def seat(node_id: int, process: str, member_id: str | None = None) -> Seat:
    return Seat(member_id=member_id or f"m-{process}", group_instance_id=f"muster-{node_id}", process=process)


OURS = seat(9, OWN)
BOTH = {1: seat(1, A), 9: OURS}


def sharing(seats: Mapping[int, Seat], owners: Mapping[int, int], *gone: SeenGone) -> Sharing:
    nodes = [Node(node_id=node_id, host="h", port=1) for node_id in seats]
    return Sharing(nodes=nodes, owners=owners, seats=seats, gone=gone)


def seen(by: str, process: str = A, *, removed: bool = False) -> SeenGone:
    return SeenGone(member_id=f"m-{process}", by=by, link_lost_ms=40, refused_ms=44, removed=removed)


def told(*decisions: Sharing) -> FormerSeats:
    former = FormerSeats()
    for each in decisions:
        former.told(each)
    return former


def end(cause: str) -> OwnershipEnd:
    return OwnershipEnd(cause=OwnershipEndCause(cause))


def test_who_was_seen_to_be_gone_and_was_removed() -> None:
    """With who removed it, and when what was seen: by ourselves, or told with the decision, however often."""
    gone = OwnershipEnd(cause=OwnershipEndCause.GONE, removed_by=C, link_lost_ms=40, refused_ms=44)
    by_others = told(sharing(BOTH, {0: 1}), sharing({9: OURS}, {0: 9}, seen(C, removed=True)))
    assert by_others.end_of(0, A, OURS) == gone
    by_others.saw(seen(OWN))
    by_others.told(sharing({9: OURS}, {0: 9}))
    assert by_others.end_of(0, A, OURS) == gone
    ourselves = told(sharing(BOTH, {0: 1}))
    ourselves.saw(seen(OWN))
    ourselves.told(sharing({9: OURS}, {0: 9}))
    assert ourselves.end_of(0, A, OURS) == msgspec.structs.replace(gone, removed_by=None), "nobody says who did"
    ourselves.saw(seen(OWN, removed=True))
    assert ourselves.end_of(0, A, OURS) == msgspec.structs.replace(gone, removed_by=OWN)


def test_who_has_removed_it_is_told_though_another_one_saw_it_first() -> None:
    """A decision had told of that one's sight before the removal was answered."""
    early = msgspec.structs.replace(seen(C), refused_ms=42)
    former = told(sharing(BOTH, {0: 1}))
    former.saw(seen(OWN))
    former.told(sharing({9: OURS}, {0: 9}, early))
    former.saw(seen(OWN, removed=True))
    assert former.end_of(0, A, OURS) == OwnershipEnd(
        cause=OwnershipEndCause.GONE, removed_by=OWN, link_lost_ms=40, refused_ms=44
    )
    assert list(former.to_tell) == [seen(OWN, removed=True)]


def test_who_is_no_member_any_more() -> None:
    """Nobody has seen its end; a process of its name that came since is another member."""
    before = sharing(BOTH, {0: 1})
    assert told(before, sharing({9: OURS}, {0: 9})).end_of(0, A, OURS) == end("no-member")
    again = {1: seat(1, A, "m-new"), 9: OURS}
    assert told(before, sharing(again, {0: 9})).end_of(0, A, OURS) == end("no-member")
    nameless = msgspec.structs.replace(again[1], process="")
    assert told(before, sharing({1: nameless, 9: OURS}, {0: 9})).end_of(0, A, OURS) == end("no-member")
    other_gone = seen(C, process=B, removed=True)
    assert told(before, sharing({9: OURS}, {0: 9}, other_gone)).end_of(0, A, OURS) == end("no-member")


def test_who_is_still_a_member() -> None:
    """Also if somebody took it for gone, and it was not removed."""
    former = told(sharing(BOTH, {0: 1}), sharing(BOTH, {}), sharing(BOTH, {0: 9}, seen(C)))
    assert former.end_of(0, A, OURS) == end("still-a-member")
    seatless = msgspec.structs.replace(sharing({9: OURS}, {0: 9}), not_understood=("m-a:1",))
    assert told(sharing(BOTH, {0: 1}), seatless).end_of(0, A, OURS) == end("still-a-member")


def test_whose_node_id_another_process_has() -> None:
    """This one, which was started in its place: it is told the decision from before first; or another one."""
    mine = seat(1, OWN)
    at_first = told(sharing({1: seat(1, A)}, {0: 1}))
    assert at_first.end_of(0, A, mine) == end("replaced")
    at_first.told(sharing({1: mine}, {0: 1}))
    assert at_first.end_of(0, A, mine) == end("replaced")
    in_a_container = told(sharing({1: seat(1, OWN, "m-before")}, {0: 1}))
    assert in_a_container.end_of(0, OWN, mine) == end("replaced"), "each process there has the same name"
    third = told(sharing(BOTH, {0: 1}), sharing({1: seat(1, B), 9: OURS}, {0: 9}))
    assert third.end_of(0, A, OURS) == end("replaced")


@pytest.mark.parametrize(
    ("number", "process", "says"),
    [(1, A, "another partition"), (0, B, "another owner, by the log"), (0, OWN, "this process itself")],
)
def test_what_is_not_known_is_not_told(number: int, process: str, says: str) -> None:
    """The log and the decisions have to agree on who it was."""
    former = told(sharing(BOTH, {0: 1, 2: 9}), sharing({9: OURS}, {0: 9, 2: 9}))
    assert former.end_of(0, A, OURS) is not None
    assert former.end_of(number, process, OURS) is None, says


def test_nothing_is_known_of_a_version_that_does_not_tell_its_name() -> None:
    nameless = msgspec.structs.replace(BOTH[1], process="")
    former = told(sharing({1: nameless, 9: OURS}, {0: 1}), sharing({9: OURS}, {0: 9}))
    assert former.end_of(0, A, OURS) is None
    named = told(sharing({1: nameless, 9: OURS}, {0: 1}), sharing(BOTH, {0: 1}), sharing(BOTH, {0: 9}))
    assert named.end_of(0, A, OURS) == end("still-a-member"), "the leader is a version that does, since"


def test_an_end_is_told_until_a_decision_tells_of_it() -> None:
    """So is the one who has removed it."""
    former = told(sharing(BOTH, {0: 1}))
    assert list(former.to_tell) == []
    former.saw(seen(OWN))
    assert list(former.to_tell) == [seen(OWN)]
    former.told(sharing(BOTH, {0: 1}, seen(OWN)))
    assert list(former.to_tell) == []
    former.saw(seen(OWN))
    former.told(sharing({9: OURS}, {0: 9}))
    former.saw(seen(OWN, removed=True))
    assert list(former.to_tell) == [seen(OWN, removed=True)]
    former.told(sharing({9: OURS}, {0: 9}, seen(C)))
    assert list(former.to_tell) == [seen(OWN, removed=True)]
    former.told(sharing({9: OURS}, {0: 9}, seen(OWN, removed=True)))
    assert list(former.to_tell) == []


def test_only_the_latest_ends_are_kept() -> None:
    former = told(sharing(BOTH, {0: 1}), sharing({9: OURS}, {0: 9}))
    for process in (A, *(f"q:{number}" for number in range(SEEN_MAX - 1)), A, "q:last"):
        former.saw(seen(OWN, process=process))
    assert former.end_of(0, A, OURS) != end("no-member"), "it was seen again since"
    for number in range(SEEN_MAX + 3):
        former.saw(seen(OWN, process=f"p:{number}"))
    assert [each.member_id for each in former.to_tell] == [f"m-p:{number}" for number in range(3, SEEN_MAX + 3)]
    assert former.end_of(0, A, OURS) == end("no-member")
