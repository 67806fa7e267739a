"""Partitions are shared evenly, with few moves, and never assigned to two at once."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.coordinator.cluster import Node
from muster.coordinator.peers.sharing import (
    AnotherUpstream,
    Candidate,
    NotUnderstood,
    ObservedEnd,
    Sharing,
    candidate_of,
    encode,
    refuse_another_upstream,
    seen_by_all,
    share,
    sharing_of,
)

NODES = st.sets(st.integers(0, 9), min_size=1, max_size=6)


def node(node_id: int) -> Node:
    return Node(node_id=node_id, host="h", port=9092 + node_id)


def candidate(node_id: int, **owned: int) -> Candidate:
    """`owned`: epochs, by names like `p3`."""
    return Candidate(node=node(node_id), owned={int(name[1:]): epoch for name, epoch in owned.items()})


def test_a_forwarding_process_owns_nothing_and_is_not_a_node() -> None:
    """It is a member all the same, so that it learns the owners; partitions that it still has move in two steps as
    usual.
    """
    frontend = msgspec.structs.replace(candidate(1, p0=7), is_frontend=True)
    shared = share(4, [frontend, candidate(2)])
    assert shared == Sharing(nodes=[node(2)], owners={1: 2, 2: 2, 3: 2})
    assert share(4, [frontend]) == Sharing(nodes=[], owners={})


@pytest.mark.parametrize(
    ("theirs", "ours", "is_refused"),
    [("one", "two", True), ("one", "one", False), ("", "two", False), ("one", "", False)],
)
def test_a_process_in_front_of_another_cluster_is_refused(theirs: str, ours: str, is_refused: bool) -> None:
    """Versions that did not send the cluster's id are accepted: they are upgraded one by one."""
    for message in (
        msgspec.structs.replace(candidate(1), upstream=theirs),
        Sharing(nodes=(), owners={}, upstream=theirs),
    ):
        try:
            refuse_another_upstream(message, ours)
        except AnotherUpstream:
            assert is_refused
        else:
            assert not is_refused


class Processes:
    """Processes that follow each decision, and the partitions that each owns: the newest claim counts."""

    def __init__(self, partitions: int) -> None:
        self.partitions = partitions
        self.owned: dict[int, dict[int, int]] = {}
        self._epoch = 0

    def candidates(self) -> list[Candidate]:
        return [Candidate(node=node(each), owned=dict(owned)) for each, owned in self.owned.items()]

    def follow(self, sharing: Sharing) -> int:
        """Apply the decision at all; return how many partitions were released."""
        let_go = 0
        for node_id, owned in self.owned.items():
            for number in owned.keys() - sharing.owned_by(node_id):
                del owned[number]
                let_go += 1
        for node_id, owned in self.owned.items():
            for number in sharing.owned_by(node_id) - owned.keys():
                assert [each for each in self.owned.values() if number in each] == []
                self._epoch += 1
                owned[number] = self._epoch
        return let_go

    def settle(self) -> int:
        """Share until nothing moves any more; return how many partitions changed their owner."""
        moved = 0
        for _ in range(3):
            moved += self.follow(share(self.partitions, self.candidates()))
        assert self.follow(share(self.partitions, self.candidates())) == 0
        return moved


@given(st.integers(1, 24), st.lists(NODES, min_size=1, max_size=5))
def test_all_partitions_are_owned_evenly_with_minimal_movement(partitions: int, crews: list[set[int]]) -> None:
    """Whichever processes join or leave; a partition never has two owners."""
    processes = Processes(partitions)
    for crew in crews:
        before = {each: len(processes.owned.get(each, ())) for each in crew}
        processes.owned = {each: processes.owned.get(each, {}) for each in sorted(crew)}
        moved = processes.settle()
        shares = [len(owned) for owned in processes.owned.values()]
        assert sum(shares) == partitions
        assert max(shares) - min(shares) <= 1
        most = sorted(before.values(), reverse=True)
        least, over = divmod(partitions, len(crew))
        assert moved == sum(max(0, had - least - (place < over)) for place, had in enumerate(most))


def test_a_moving_partition_has_no_owner_until_it_is_released() -> None:
    both = [candidate(1, p0=1, p1=2), candidate(2)]
    sharing = share(2, both)
    assert sharing.owners == {0: 1}
    assert sharing.nodes == [node(1), node(2)]
    assert share(2, [candidate(1, p0=1), candidate(2)]).owners == {0: 1, 1: 2}


def test_of_two_claims_the_newer_one_counts() -> None:
    """A process that was stopped for long reports outdated claims."""
    assert share(2, [candidate(1, p0=5, p1=5), candidate(2, p0=6, p1=7)]).owners == {0: 2}
    assert share(2, [candidate(1, p0=9, p1=5), candidate(2, p0=6, p1=7)]).owners == {0: 1, 1: 2}
    assert share(1, [candidate(1, p0=1, p7=1)]).owners == {0: 1}  # no such partition


def test_the_order_of_members_is_of_no_importance() -> None:
    members = [candidate(3, p2=1), candidate(1), candidate(2, p0=1)]
    assert share(5, members) == share(5, members[::-1])


def test_messages_are_read_as_they_were_written() -> None:
    ended = (ObservedEnd(member_id="m-2", by="h:1", link_lost_ms=1, refused_ms=2, removed=True),)
    one = msgspec.structs.replace(candidate(1, p0=3), process="h:1", ended=ended)
    sharing = Sharing(nodes=[node(1)], owners={0: 1}, ended=ended)
    assert candidate_of(encode(one), "muster-log-1") == one
    assert sharing_of(encode(sharing)) == sharing


def test_the_names_in_messages_are_those_that_former_versions_read() -> None:
    """Several versions share one group during an upgrade, so a field's name on the wire is fixed."""
    fields = {encoded.encode_name for encoded in msgspec.structs.fields(Candidate)}
    assert fields == {"level", "node", "owned", "leaves", "is_edge", "joins", "process", "gone", "upstream"}
    fields = {encoded.encode_name for encoded in msgspec.structs.fields(Sharing)}
    assert fields == {"level", "nodes", "owners", "seats", "not_understood", "gone", "upstream"}


def test_messages_of_an_older_version_are_read() -> None:
    """It sends neither its name nor ends, and it ignores unknown fields."""
    reported = b'{"level":1,"node":{"node_id":1,"host":"h","port":9093},"owned":{"0":3},"leaves":false,"joins":1}'
    assert candidate_of(reported, "muster-log-1") == msgspec.structs.replace(candidate(1, p0=3), joins=1)
    assert candidate_of(reported[:-1] + b',"later":[1]}', "muster-log-1") == candidate_of(reported, "muster-log-1")


def test_the_best_evidence_of_an_end_is_reported() -> None:
    """The report of the process that removed it, otherwise of the first that saw it."""

    def seen(by: str, refused_ms: int, *, removed: bool = False) -> ObservedEnd:
        return ObservedEnd(member_id="m-9", by=by, link_lost_ms=0, refused_ms=refused_ms, removed=removed)

    def reported(*ended: ObservedEnd) -> tuple[ObservedEnd, ...]:
        return seen_by_all(msgspec.structs.replace(candidate(n), ended=(each,)) for n, each in enumerate(ended))

    late, early, remover = seen("a:1", 7), seen("b:1", 5), seen("c:1", 9, removed=True)
    assert reported(late, early) == reported(early, late) == (early,)
    assert reported(early, remover, late) == reported(remover, early) == (remover,)
    other = msgspec.structs.replace(late, member_id="m-8")
    assert reported(late, other) == (late, other)
    assert reported() == ()


@pytest.mark.parametrize(
    ("metadata", "says"),
    [
        (b"", "not a message of Muster"),
        (b"\x00\x01\x00\x00", "not a message of Muster"),
        (b'{"level":1,"node":7}', "not a message of Muster"),
        (b"[" * 100_000, "not a message of Muster"),
        (b'{"news":' + b"[" * 100_000, "not a message of Muster"),
        (
            msgspec.json.encode({"level": 2, "news": 1}),
            "a message of level 2; this version of Muster knows level 1",
        ),
    ],
)
def test_unreadable_metadata_is_refused(metadata: bytes, says: str) -> None:
    with pytest.raises(NotUnderstood, match=says):
        candidate_of(metadata, "muster-log-7")
    with pytest.raises(NotUnderstood, match=says):
        sharing_of(metadata)


@pytest.mark.parametrize("group_instance_id", [None, "", "muster-log-11", "muster-log-2"])
def test_a_process_with_a_false_node_id_is_refused(group_instance_id: str | None) -> None:
    """Two members with one node id could not be told apart."""
    with pytest.raises(NotUnderstood, match="it claims to be node 1"):
        candidate_of(encode(candidate(1)), group_instance_id)
