"""Subscriptions and assignments as consumers write them, and invalid ones."""

import importlib
import io
import struct

import pytest
from aiokafka.coordinator.protocol import ConsumerProtocolMemberAssignment, ConsumerProtocolMemberMetadata
from hypothesis import example, given
from hypothesis import strategies as st
from kio.serial import entity_writer

from muster.events.consumer_protocol import (
    assigned_partitions,
    encode_assignment,
    encode_subscription,
    owned_partitions,
    subscribed_by_any,
    subscribed_topics,
)

VERSIONS = (0, 1, 2, 3)
NULL = b"\xff\xff\xff\xff"
"""The count of an array that is null, and the length of bytes that are."""
TOPICS = st.text(st.characters(codec="ascii"), min_size=1, max_size=20)
PARTITIONS = st.dictionaries(TOPICS, st.lists(st.integers(0, 2**31 - 1), unique=True, max_size=5), max_size=5)


@given(st.frozensets(TOPICS))
def test_a_subscription_has_its_topics(topics: frozenset[str]) -> None:
    """Our encoding is decoded here and by aiokafka, and aiokafka's is decoded here."""
    assert subscribed_topics(encode_subscription(topics)) == topics
    assert set(ConsumerProtocolMemberMetadata.decode(encode_subscription(topics)).subscription) == topics
    assert subscribed_topics(ConsumerProtocolMemberMetadata(0, list(topics), b"user").encode()) == topics


@given(PARTITIONS)
def test_an_assignment_has_its_partitions_sorted(partitions: dict[str, list[int]]) -> None:
    """Our encoding is decoded here and by aiokafka, and aiokafka's is decoded here."""
    pairs = tuple(sorted((topic, number) for topic, numbers in partitions.items() for number in numbers))
    encoded = encode_assignment(partitions)
    assert assigned_partitions(encoded) == pairs
    assert dict(ConsumerProtocolMemberAssignment.decode(encoded).assignment) == partitions
    assert assigned_partitions(ConsumerProtocolMemberAssignment(0, list(partitions.items()), b"").encode()) == pairs


@pytest.mark.parametrize("version", VERSIONS)
def test_all_versions_are_read(version: int) -> None:
    """Owned partitions, generation and rack of later versions are no obstacle."""
    module = importlib.import_module(f"kio.schema.consumer_protocol_subscription.v{version}.data")
    owned = {} if version == 0 else {"owned_partitions": (module.TopicPartition(topic="b", partitions=(1, 2)),)}
    subscription = io.BytesIO()
    cls = module.ConsumerProtocolSubscription
    entity_writer(cls)(subscription, cls(topics=("a", "b"), user_data=b"u", **owned))
    assert subscribed_topics(struct.pack(">h", version) + subscription.getvalue()) == frozenset({"a", "b"})

    module = importlib.import_module(f"kio.schema.consumer_protocol_assignment.v{version}.data")
    assignment = io.BytesIO()
    cls = module.ConsumerProtocolAssignment
    entity_writer(cls)(assignment, cls(assigned_partitions=(module.TopicPartition(topic="a", partitions=(1, 0)),)))
    assert assigned_partitions(struct.pack(">h", version) + assignment.getvalue()) == (("a", 0), ("a", 1))


def test_an_unknown_version_is_read_as_far_as_it_is_known() -> None:
    """Every version begins with the fields of version 0."""
    assert subscribed_topics(b"\x00\x63" + encode_subscription({"a"})[2:] + b"news") == frozenset({"a"})
    assert assigned_partitions(b"\x00\x63" + encode_assignment({"a": [7]})[2:] + b"news") == (("a", 7),)


def test_a_later_version_without_its_owned_partitions_is_read() -> None:
    """Some clients write version 1 with the fields of version 0."""
    assert subscribed_topics(b"\x00\x01" + encode_subscription({"a"})[2:]) == frozenset({"a"})


def test_empty_bytes_are_an_assignment_and_not_a_subscription() -> None:
    """A member that the leader left out has an empty assignment."""
    assert assigned_partitions(b"") == ()
    assert subscribed_topics(b"") is None


@given(st.binary())
@example(b"x" * 60)
@example(b"\0\0\xff\xff\xff\xff")
@example(b"\0\0\xff\xff\xff\xfe")
@example(b"\0\0\x7f\xff\xff\xff")
@example(b"\0\0\0\0\0\1\0\1\xff")
@example(b"\0\0\0\0\0\1\xff\xff")
@example(b"\0\1" + NULL + NULL + NULL)
@example(b"\0\1\0\0\0\0" + NULL + NULL)
@example(b"\0\1\0\0\0\0" + NULL + b"\0\0\0\1\0\1a" + NULL)
@example(b"\0\0\0\0\0\1\0\1a" + NULL + NULL)
def test_no_bytes_raise(data: bytes) -> None:
    """Undecodable metadata is None and harms no one (known bug R16)."""
    topics, owned, partitions = subscribed_topics(data), owned_partitions(data), assigned_partitions(data)
    assert topics is None or isinstance(topics, frozenset)
    assert owned is None or isinstance(owned, frozenset)
    assert partitions is None or isinstance(partitions, tuple)
    assert subscribed_by_any([data]) == topics


@pytest.mark.parametrize(
    "data",
    [
        b"x" * 60,
        b"\0",
        b"\0\0\xff\xff\xff\xfe",
        b"\0\0\0\0\0\1\0\1\xff",
        b"\0\0" + NULL + NULL,
        encode_subscription({"abc"})[:-1],
    ],
)
def test_undecodable_bytes_are_none(data: bytes) -> None:
    """Garbage is distinguished from no topics."""
    assert subscribed_topics(data) is None
    assert assigned_partitions(data) is None


@given(
    st.lists(
        st.one_of(
            st.binary(max_size=12),
            st.lists(st.sampled_from(["a", "b", "\u00e9"]), max_size=3).map(encode_subscription),
            st.lists(st.sampled_from(["a", "b"]), max_size=2).map(lambda topics: encode_subscription(topics) + b"more"),
            st.lists(st.sampled_from(["a", "b"]), max_size=2).map(lambda topics: encode_subscription(topics)[:-2]),
            st.tuples(st.sampled_from(["a", "b"]), st.binary(max_size=6)).map(
                lambda of: encode_subscription([of[0]])[:-4] + of[1]
            ),
        ),
        max_size=6,
    )
)
@example([encode_subscription(["a"]), encode_subscription(["a"])[:-4] + b"\xff\xff\xff\xfe"])
@example([encode_subscription(["a"]), encode_subscription(["a"])[:-4] + b"\0\0\0\1"])
@example([encode_subscription(["a"]), encode_subscription(["a"])[:-4]])
@example([encode_subscription(["a"]), encode_subscription(["a"])[:-1]])
@example([encode_subscription(["a"]), encode_subscription(["a"])[:-4] + b"\0\0\0\0"])
@example([encode_subscription(["a"]), encode_subscription(["a"])[:-4] + b"\0\0\0\1u"])
def test_the_subscription_of_many_members_is_that_of_each(subscriptions: list[bytes]) -> None:
    """Though the lists that are the same are read once."""
    each = [subscribed_topics(metadata) for metadata in subscriptions]
    known = [topics for topics in each if topics is not None]
    expected = frozenset[str]().union(*known) if len(known) == len(each) else None
    assert subscribed_by_any(subscriptions) == expected


def test_the_number_of_examined_topics_is_limited() -> None:
    """Equal lists count once, wherever they are; after the list that exceeds the limit, no other is read."""
    first, second = encode_subscription(["a", "b"]), encode_subscription(["c"])
    assert subscribed_by_any([first, second, first, second], topics_max=3) == frozenset({"a", "b", "c"})
    others = iter([first, second, encode_subscription(["d"]), first])
    assert subscribed_by_any(others, topics_max=3) is None
    assert list(others) == [first]
    assert subscribed_by_any([struct.pack(">hi", 0, 2**31 - 1)]) is None


def test_a_known_list_hides_no_later_one() -> None:
    """Members of one kind may precede those of another."""
    first, second = encode_subscription(["a"]), encode_subscription(["b"])
    assert subscribed_by_any([first, first, second]) == frozenset({"a", "b"})


def test_remembered_lists_of_one_length_are_limited() -> None:
    """Four: each list is compared with those; a forgotten one is read again, and counts again."""
    for kinds, is_remembered in ((4, True), (5, False)):
        subscriptions = [encode_subscription([f"t{number}"]) for number in range(kinds)] * 2
        assert (subscribed_by_any(subscriptions, topics_max=kinds) is not None) is is_remembered


def test_owned_partitions_are_read_from_version_1_on() -> None:
    """As other clients encode them; a subscription of version 0 has none."""
    metadata = b"\x00\x01" + encode_subscription(["orders"])[2:] + b"\x00\x00\x00\x01\x00\x06orders\x00\x00\x00\x02"
    metadata += b"\x00\x00\x00\x03\x00\x00\x00\x05"
    assert owned_partitions(metadata) == frozenset([("orders", 3), ("orders", 5)])
    assert owned_partitions(metadata[:-1]) is None
    assert owned_partitions(b"\x00\x00" + metadata[2:]) is None
    assert owned_partitions(encode_subscription(["orders"])) is None
    for cut in (b"", b"\xff", b"\x01"):
        assert owned_partitions(cut) is None


def test_equal_short_messages_are_decoded_once_and_long_ones_are_not_kept() -> None:
    """A history repeats few messages very often; a large one is not worth its memory."""
    short, long = encode_assignment({"a": [1]}), encode_assignment({"a": range(1_000)})
    assert assigned_partitions(short) is assigned_partitions(bytes(bytearray(short)))
    assert assigned_partitions(long) is not assigned_partitions(bytes(bytearray(long)))


@pytest.mark.parametrize(("topics", "is_known"), [(50_000, True), (50_001, False)])
def test_the_number_of_examined_topics_has_a_limit(topics: int, is_known: bool) -> None:
    """More would delay everything else; none of them is known then."""
    found = subscribed_by_any([encode_subscription(f"t{number}" for number in range(topics))])
    assert (found is not None and len(found) == topics) == is_known
