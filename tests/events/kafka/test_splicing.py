"""Items of an array are changed or dropped; everything around them stays the same, byte by byte."""

import pytest
from kio.index import load_response_schema

from muster.events.kafka.codec.splicing import (
    Pieces,
    change_fields,
    change_inner_items,
    change_items,
    text_of,
    text_piece,
)
from muster.events.steps import ENTRIES_PER_STEP, finished

METADATA = 3


def topic(version: int, name: bytes) -> bytes:
    """Metadata's, without partitions, with a tagged field if there may be one."""
    if version < 9:
        return bytes(2) + bytes([0, len(name)]) + name + b"\x00" + bytes(4)
    return bytes(2) + bytes([len(name) + 1]) + name + b"\x00" + b"\x01" + bytes(4) + b"\x01\x7d\x02hi"


@pytest.mark.parametrize("version", [7, 9])
def test_items_are_changed_and_dropped(version: int) -> None:
    """The first is dropped, the second gets a name as long, and the third stays."""
    is_flexible = version >= 9

    def array(*names: bytes) -> bytes:
        topics = b"".join(topic(version, name) for name in names)
        return (bytes([len(names) + 1]) if is_flexible else bytes([0, 0, 0, len(names)])) + topics

    before = bytes(4) + (b"\x01\x02c" if is_flexible else bytes(4) + b"\x00\x01c") + b"\x00\x00\x00\x07"
    behind = b"\x01\x02\x03 whatever"

    def change(pieces: Pieces) -> Pieces | None:
        if b"drop" in pieces["name"]:
            return None
        return pieces | {"name": pieces["name"].replace(b"other", b"b-new")}

    changed = change_items(load_response_schema(METADATA, version), "topics", change)
    written = finished(changed(b"in front" + before + array(b"drop", b"other", b"c") + behind, len(b"in front")))
    assert written == before + array(b"b-new", b"c") + behind


@pytest.mark.parametrize("partitions", [0, 1, 3])
def test_items_within_items_are_changed(partitions: int) -> None:
    """OffsetCommit v8 has partitions in its topics: one is dropped from each, one changed, and the tags stay."""
    tag = b"\x01\x7d\x02hi"

    def partition(index: int) -> bytes:
        return index.to_bytes(4, "big") + bytes(2) + tag

    def topic_of(name: bytes, *indexes: int) -> bytes:
        listed = bytes([len(indexes) + 1]) + b"".join(map(partition, indexes))
        return bytes([len(name) + 1]) + name + listed + tag

    def answer(*topics: bytes) -> bytes:
        return bytes(4) + bytes([len(topics) + 1]) + b"".join(topics) + tag + b"behind"

    def change(pieces: Pieces) -> Pieces | None:
        index = int.from_bytes(pieces["partition_index"], "big")
        return None if index == 0 else pieces | {"partition_index": (index + 7).to_bytes(4, "big")}

    indexes = range(partitions)
    changed = change_inner_items(load_response_schema(8, 8), "topics", "partitions", change)
    before = answer(topic_of(b"orders", *indexes), topic_of(b"other", *indexes))
    changed_indexes = [index + 7 for index in indexes if index]
    after = answer(topic_of(b"orders", *changed_indexes), topic_of(b"other", *changed_indexes))
    assert finished(changed(b"in front" + before, len(b"in front"))) == after


@pytest.mark.parametrize(("brokers", "topics"), [(0, 101), (101, 0), (64, 64), (64, 3)])
def test_many_items_are_gone_through_in_steps(brokers: int, topics: int) -> None:
    """No step has many of them, and all are counted, whether they are skipped or examined."""
    broker = bytes(4) + b"\x02h" + bytes(4) + b"\x00" + b"\x00"
    listed = bytes([brokers + 1]) + broker * brokers + b"\x02c" + bytes(4) + bytes([topics + 1])
    answer = bytes(4) + listed + topic(9, b"orders") * topics + bytes(4) + b"\x00"
    change = change_items(load_response_schema(METADATA, 9), "topics", lambda pieces: pieces)
    assert finished(change(answer, 0)) == answer
    work = list(change(answer, 0))
    assert max(work) <= ENTRIES_PER_STEP
    assert sum(work) == brokers + topics


FETCH = 1


@pytest.mark.parametrize("tags_before", [b"", b"\x07\x03abc"])
def test_items_of_a_tagged_array_are_changed(tags_before: bytes) -> None:
    """Fetch v16 names in one where leaders are: the fields around it stay, and the length is the new one."""

    def node(number: int, host: bytes) -> bytes:
        return number.to_bytes(4, "big") + bytes([len(host) + 1]) + host + bytes(4) + b"\x00" + b"\x00"

    def answer(*nodes: bytes) -> bytes:
        listed = bytes([len(nodes) + 1]) + b"".join(nodes)
        tagged = tags_before + b"\x00" + bytes([len(listed)]) + listed + b"\x09\x02hi"
        return bytes(10) + b"\x01" + bytes([3 if tags_before else 2]) + tagged + b"behind"

    def change(pieces: Pieces) -> Pieces | None:
        return None if b"drop" in pieces["host"] else pieces | {"host": b"\x0dmuster.local"}

    changed = change_items(load_response_schema(FETCH, 16), "node_endpoints", change)
    before, after = answer(node(1, b"drop"), node(2, b"b")), answer(node(2, b"muster.local"))
    assert finished(changed(b"in front" + before, len(b"in front"))) == after


def test_an_answer_without_the_tagged_array_stays_as_it_is() -> None:
    """Even if other tagged fields are present."""
    changed = change_items(load_response_schema(FETCH, 16), "node_endpoints", lambda _: None)
    for tagged in (b"\x00", b"\x01\x09\x02hi"):
        answer = bytes(10) + b"\x01" + tagged + b"behind"
        assert finished(changed(b"in front" + answer, len(b"in front"))) == answer


@pytest.mark.parametrize("version", [7, 9])
def test_fields_of_the_message_itself_are_changed(version: int) -> None:
    """Up to the last named field; without changes everything stays."""
    start = bytes(4) + (b"\x01" if version >= 9 else bytes(4))
    cluster_id, other = (b"\x02c", b"\x02d") if version >= 9 else (b"\x00\x01c", b"\x00\x01d")
    answer = start + cluster_id + b"\x00\x00\x00\x07" + b"whatever"
    entity = load_response_schema(METADATA, version)
    changed = change_fields(entity, "cluster_id", lambda pieces: pieces | {"cluster_id": other})
    assert finished(changed(b"in front" + answer, 8)) == answer.replace(cluster_id, other)
    assert finished(change_fields(entity, "cluster_id", lambda _: None)(b"in front" + answer, 8)) == answer


@pytest.mark.parametrize("flexible", [True, False])
def test_a_text_that_is_put_in_is_read_again(flexible: bool) -> None:
    """With the length before it: of its bytes, in the form of the version."""
    piece = text_piece("größe", flexible=flexible)
    assert piece == (b"\x08" if flexible else b"\x00\x07") + "größe".encode()
    assert text_of(piece, flexible=flexible) == "größe"
