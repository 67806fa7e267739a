"""Why a former owner lost a partition: from what processes saw and decided, never guessed."""

from collections.abc import Mapping

import msgspec
import pytest

from muster.coordinator.cluster import Node
from muster.coordinator.peers.former_members import SEEN_MAX, FormerMembers
from muster.coordinator.peers.sharing import MemberIdentity, ObservedEnd, Sharing
from muster.events.ownership import OwnershipEnd, OwnershipEndCause

A, B, C, OWN = "a:1", "b:2", "c:3", "own:9"


def member(node_id: int, process: str, member_id: str | None = None) -> MemberIdentity:
    return MemberIdentity(member_id=member_id or f"m-{process}", group_instance_id=f"muster-{node_id}", process=process)


OURS = member(9, OWN)
BOTH = {1: member(1, A), 9: OURS}


def sharing(members: Mapping[int, MemberIdentity], owners: Mapping[int, int], *ended: ObservedEnd) -> Sharing:
    nodes = [Node(node_id=node_id, host="h", port=1) for node_id in members]
    return Sharing(nodes=nodes, owners=owners, members=members, ended=ended)


def seen(by: str, process: str = A, *, removed: bool = False) -> ObservedEnd:
    return ObservedEnd(member_id=f"m-{process}", by=by, link_lost_ms=40, refused_ms=44, removed=removed)


def members_after(*decisions: Sharing) -> FormerMembers:
    former = FormerMembers()
    for each in decisions:
        former.apply(each)
    return former


def end(cause: str) -> OwnershipEnd:
    return OwnershipEnd(cause=OwnershipEndCause(cause))


def test_a_process_seen_ended_and_removed() -> None:
    """With the process that removed it, the time and the evidence: seen by ourselves, or reported with a decision, any
    number of times.
    """
    ended = OwnershipEnd(cause=OwnershipEndCause.GONE, removed_by=C, link_lost_ms=40, refused_ms=44)
    by_others = members_after(sharing(BOTH, {0: 1}), sharing({9: OURS}, {0: 9}, seen(C, removed=True)))
    assert by_others.end_of(0, A, OURS) == ended
    by_others.note_end(seen(OWN))
    by_others.apply(sharing({9: OURS}, {0: 9}))
    assert by_others.end_of(0, A, OURS) == ended
    ourselves = members_after(sharing(BOTH, {0: 1}))
    ourselves.note_end(seen(OWN))
    ourselves.apply(sharing({9: OURS}, {0: 9}))
    assert ourselves.end_of(0, A, OURS) == msgspec.structs.replace(ended, removed_by=None), "nobody says who did"
    ourselves.note_end(seen(OWN, removed=True))
    assert ourselves.end_of(0, A, OURS) == msgspec.structs.replace(ended, removed_by=OWN)


def test_the_remover_is_named_though_another_process_saw_the_end_first() -> None:
    """A decision had reported the other process's evidence before the removal was answered."""
    early = msgspec.structs.replace(seen(C), refused_ms=42)
    former = members_after(sharing(BOTH, {0: 1}))
    former.note_end(seen(OWN))
    former.apply(sharing({9: OURS}, {0: 9}, early))
    former.note_end(seen(OWN, removed=True))
    assert former.end_of(0, A, OURS) == OwnershipEnd(
        cause=OwnershipEndCause.GONE, removed_by=OWN, link_lost_ms=40, refused_ms=44
    )
    assert list(former.unreported) == [seen(OWN, removed=True)]


def test_a_process_that_is_no_longer_a_member() -> None:
    """No process saw its end; a later process with the same name is another member."""
    before = sharing(BOTH, {0: 1})
    assert members_after(before, sharing({9: OURS}, {0: 9})).end_of(0, A, OURS) == end("no-member")
    again = {1: member(1, A, "m-new"), 9: OURS}
    assert members_after(before, sharing(again, {0: 9})).end_of(0, A, OURS) == end("no-member")
    nameless = msgspec.structs.replace(again[1], process="")
    assert members_after(before, sharing({1: nameless, 9: OURS}, {0: 9})).end_of(0, A, OURS) == end("no-member")
    other_gone = seen(C, process=B, removed=True)
    assert members_after(before, sharing({9: OURS}, {0: 9}, other_gone)).end_of(0, A, OURS) == end("no-member")


def test_a_process_that_is_still_a_member() -> None:
    """Even if a process reported it gone, but it was not removed."""
    former = members_after(sharing(BOTH, {0: 1}), sharing(BOTH, {}), sharing(BOTH, {0: 9}, seen(C)))
    assert former.end_of(0, A, OURS) == end("still-a-member")
    not_listed = msgspec.structs.replace(sharing({9: OURS}, {0: 9}), not_understood=("m-a:1",))
    assert members_after(sharing(BOTH, {0: 1}), not_listed).end_of(0, A, OURS) == end("still-a-member")


def test_a_process_whose_node_id_was_taken() -> None:
    """This process, started in its place: its first message is the decision from before; or a third one."""
    mine = member(1, OWN)
    at_first = members_after(sharing({1: member(1, A)}, {0: 1}))
    assert at_first.end_of(0, A, mine) == end("replaced")
    at_first.apply(sharing({1: mine}, {0: 1}))
    assert at_first.end_of(0, A, mine) == end("replaced")
    in_a_container = members_after(sharing({1: member(1, OWN, "m-before")}, {0: 1}))
    assert in_a_container.end_of(0, OWN, mine) == end("replaced"), "each process there has the same name"
    third = members_after(sharing(BOTH, {0: 1}), sharing({1: member(1, B), 9: OURS}, {0: 9}))
    assert third.end_of(0, A, OURS) == end("replaced")


@pytest.mark.parametrize(
    ("number", "process", "says"),
    [(1, A, "another partition"), (0, B, "another owner, by the log"), (0, OWN, "this process itself")],
)
def test_unknown_ends_are_not_reported(number: int, process: str, says: str) -> None:
    """The log and the decisions have to agree on the process."""
    former = members_after(sharing(BOTH, {0: 1, 2: 9}), sharing({9: OURS}, {0: 9, 2: 9}))
    assert former.end_of(0, A, OURS) is not None
    assert former.end_of(number, process, OURS) is None, says


def test_a_version_without_names_gives_no_end() -> None:
    nameless = msgspec.structs.replace(BOTH[1], process="")
    former = members_after(sharing({1: nameless, 9: OURS}, {0: 1}), sharing({9: OURS}, {0: 9}))
    assert former.end_of(0, A, OURS) is None
    named = members_after(sharing({1: nameless, 9: OURS}, {0: 1}), sharing(BOTH, {0: 1}), sharing(BOTH, {0: 9}))
    assert named.end_of(0, A, OURS) == end("still-a-member"), "the leader is a version that does, since"


def test_an_end_is_reported_until_a_decision_contains_it() -> None:
    """The process that has removed it is reported, too."""
    former = members_after(sharing(BOTH, {0: 1}))
    assert list(former.unreported) == []
    former.note_end(seen(OWN))
    assert list(former.unreported) == [seen(OWN)]
    former.apply(sharing(BOTH, {0: 1}, seen(OWN)))
    assert list(former.unreported) == []
    former.note_end(seen(OWN))
    former.apply(sharing({9: OURS}, {0: 9}))
    former.note_end(seen(OWN, removed=True))
    assert list(former.unreported) == [seen(OWN, removed=True)]
    former.apply(sharing({9: OURS}, {0: 9}, seen(C)))
    assert list(former.unreported) == [seen(OWN, removed=True)]
    former.apply(sharing({9: OURS}, {0: 9}, seen(OWN, removed=True)))
    assert list(former.unreported) == []


def test_only_the_latest_ends_are_kept() -> None:
    former = members_after(sharing(BOTH, {0: 1}), sharing({9: OURS}, {0: 9}))
    for process in (A, *(f"q:{number}" for number in range(SEEN_MAX - 1)), A, "q:last"):
        former.note_end(seen(OWN, process=process))
    assert former.end_of(0, A, OURS) != end("no-member"), "it was seen again since"
    for number in range(SEEN_MAX + 3):
        former.note_end(seen(OWN, process=f"p:{number}"))
    assert [each.member_id for each in former.unreported] == [f"m-p:{number}" for number in range(3, SEEN_MAX + 3)]
    assert former.end_of(0, A, OURS) == end("no-member")
