"""A relayed Produce: its acks, and topics that clients may not write to, at any position in it."""

import itertools
import struct
from collections.abc import Sequence
from typing import Final
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode
from structlog.testing import capture_logs

from muster.coordinator.sidecar.messages.produce import plan_produce
from muster.coordinator.sidecar.messages.reserved_names import ReservedNames
from muster.coordinator.sidecar.relay.conversation import BEGINNING_BYTES_MAX
from muster.coordinator.wire.api import Fault, ProtocolError
from tests.coordinator.sidecar.messages.produced import FLEXIBLE_FROM, IDS_FROM, Topic, produced, varint

EVENTS, EVENTS_ID = "__muster_events", UUID("00000000-0000-4000-8000-0000000e7e27")
VERSIONS = range(14)
FLEXIBLE = [version for version in VERSIONS if version >= FLEXIBLE_FROM]
OURS: Final = Topic(name=EVENTS, topic_id=EVENTS_ID, records=(b"forged",))
OTHERS: Final = Topic(name="orders", topic_id=UUID(int=7), records=(b"r" * 70,))


def reserved() -> ReservedNames:
    """The reserved names in front of a cluster that has the log."""
    subject = ReservedNames(EVENTS)
    subject.update_ids({EVENTS: EVENTS_ID})
    return subject


def is_stopped(frame: bytes, version: int, cuts: Sequence[int] = ()) -> bool:
    """Return whether a streamed request, cut there, is stopped before its last byte has gone to the broker."""
    plan = plan_produce(frame, version, None, reserved())
    if plan.is_handled:
        return True
    assert plan.check_stream is not None
    stream = len(frame).to_bytes(4, "big") + frame
    for begin, end in itertools.pairwise([0, *sorted(cut % len(stream) for cut in cuts), len(stream)]):
        try:
            plan.check_stream(stream[begin:end])
        except ProtocolError as error:
            return error.fault is Fault.REFUSED_PRODUCE
    return False


# ---- the acks ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("subject", [ReservedNames(None), reserved()], ids=["nothing reserved", "reserved"])
def test_the_acks_are_found_behind_the_names(version: int, subject: ReservedNames) -> None:
    for acks, client_id, transactional_id in itertools.product(
        [-1, 0, 1], [None, "", "shop", "x" * 32_767], [None, "", "orders-1", "t" * 32_767]
    ):
        frame = produced(version, [OTHERS], acks=acks, client_id=client_id, transactional_id=transactional_id)
        assert plan_produce(frame, version, None, subject).is_answered is (acks != 0)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("subject", [ReservedNames(None), reserved()], ids=["nothing reserved", "reserved"])
def test_a_truncated_prefix_is_reported(version: int, subject: ReservedNames) -> None:
    """For every shorter length: then more of it is awaited. No prefix yields wrong acks."""
    frame = produced(version, [OTHERS], acks=0, transactional_id="orders-1")
    known = []
    for size in range(8, len(frame)):
        try:
            known.append(plan_produce(frame[:size], version, None, subject).is_answered)
        except (struct.error, IndexError):
            assert not known, f"the acks were known before {size} bytes"
    assert set(known) == {False}


def test_the_searched_fields_are_within_the_bound() -> None:
    """The longest names that a client can send, in the version that has most before the first topic."""
    frame = produced(12, [OTHERS], client_id="x" * 32_767, transactional_id="t" * 32_767)
    assert plan_produce(frame[:BEGINNING_BYTES_MAX], 12, None, reserved()).is_answered


# ---- topics that clients may not write to ---------------------------------------------------------------

others = st.builds(
    Topic,
    name=st.sampled_from(["orders", EVENTS + "_", EVENTS[:-1], "x" * 249, "muster"]),
    topic_id=st.uuids(),
    records=st.lists(st.none() | st.binary(max_size=300) | st.just(OURS.name.encode() * 20), max_size=4),
    tags=st.lists(st.binary(max_size=200), max_size=2),
    partition_tags=st.lists(st.binary(max_size=3), max_size=2),
)
cuts = st.lists(st.integers(0, 5_000), max_size=30)


@given(
    version=st.sampled_from(VERSIONS),
    before=st.lists(others, max_size=4),
    behind=st.lists(others, max_size=2),
    padding=st.integers(0, 3),
    cuts=cuts,
)
def test_a_reserved_topic_is_found_at_any_position_and_the_stream_is_cut(
    version: int, before: list[Topic], behind: list[Topic], padding: int, cuts: list[int]
) -> None:
    frame = produced(version, [*before, OURS, *behind], padding=padding, header_tags=[b"x"])
    assert is_stopped(frame, version, cuts)


@given(version=st.sampled_from(VERSIONS), topics=st.lists(others, max_size=6), padding=st.integers(0, 3), cuts=cuts)
def test_all_others_pass(version: int, topics: list[Topic], padding: int, cuts: list[int]) -> None:
    assert not is_stopped(produced(version, topics, padding=padding), version, cuts)


@pytest.mark.parametrize("version", VERSIONS)
def test_behind_many_topics_and_large_records(version: int) -> None:
    """Including byte by byte, and where records begin."""
    many = [Topic(name=f"t{number}", topic_id=UUID(int=number + 1), records=(None,)) for number in range(300)]
    large = Topic(name="large", topic_id=UUID(int=9_999), records=(b"x" * 100_000, EVENTS.encode() * 9_000))
    frame = produced(version, [*many, large, OURS])
    assert is_stopped(frame, version, range(0, len(frame), 65_536))
    small = produced(version, [OTHERS, OTHERS, OURS])
    assert is_stopped(small, version, range(len(small)))


@pytest.mark.parametrize("name", [EVENTS, f"{EVENTS}_offsets", f"{EVENTS}_fencing_probe"])
def test_each_topic_of_the_log(name: str) -> None:
    assert is_stopped(produced(9, [OTHERS, Topic(name=name, topic_id=None, records=(b"x",))]), 9)


def test_a_recreated_topic_has_another_id() -> None:
    subject = reserved()
    subject.update_ids({EVENTS: UUID(int=99), "orders": UUID(int=98)})
    alone = [produced(13, [Topic(name="", topic_id=UUID(int=each), records=(b"x",))]) for each in (99, 98)]
    assert [plan_produce(frame, 13, None, subject).is_handled for frame in alone] == [True, False]


def test_a_missing_topic_id_is_logged_once_with_the_cause() -> None:
    """A permission is missing only if the cluster says so; a topic that was never seen may become known later."""
    subject = ReservedNames(EVENTS)
    subject.settle(is_here=True)
    gone, denied = ErrorCode.unknown_topic_or_partition, ErrorCode.topic_authorization_failed
    with capture_logs() as lines:
        for reported in (gone, EVENTS_ID, gone, gone, EVENTS_ID, denied, denied, ErrorCode.none):
            subject.update_ids({EVENTS: reported})
    assert [(line["log_level"], line["event"].partition(":")[0]) for line in lines] == [
        ("error", "the event topic was deleted"),
        ("warning", "cannot keep clients that name topics by id (Produce v13) from writing to the event topic"),
    ]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(("acks", "topics"), [(1, [OURS]), (0, [OURS]), (-1, [OURS, OTHERS]), (-1, [OTHERS, OURS])])
def test_alone_it_is_answered_if_an_answer_is_wanted(version: int, acks: int, topics: list[Topic]) -> None:
    """Other responses are never read; and Kafka 4 supports no version below 3."""
    plan = plan_produce(produced(version, topics, acks=acks), version, None, reserved())
    assert plan.is_handled is (topics == [OURS] and acks == 1 and version >= 3)


@pytest.mark.parametrize("number", [0, 7, 49])
def test_no_client_produces_under_an_owners_transactional_id(number: int) -> None:
    frame = produced(9, [OTHERS], transactional_id=f"muster-{EVENTS}-{number}")
    with pytest.raises(ProtocolError, match=f"muster-{EVENTS}-{number}") as raised:
        plan_produce(frame, 9, None, reserved())
    assert raised.value.fault is Fault.REFUSED_PRODUCE


TOO_LONG = varint(6, padding=5)
OVER_32_BITS = b"\xff\xff\xff\xff\x1f"


@pytest.mark.parametrize("version", [9, 12, 13])
@pytest.mark.parametrize(
    ("count", "behind"),
    [
        pytest.param(TOO_LONG, b"", id="more than five bytes"),
        pytest.param(OVER_32_BITS, b"", id="more than 32 bits"),
        pytest.param(b"\xff\xff\xff\xff\x0f", b"", id="less than nothing"),
        pytest.param(b"\x82\x80\x80\x80\x10", b"", id="more than 32 bits, of which the lowest say one"),
        pytest.param(b"\x00", b"", id="null"),
        pytest.param(varint(100_002), b"", id="more than there can be"),
        pytest.param(b"\x02", b"\x00" * 16 + b"\x82\x80\x80\x80\x10", id="so many partitions"),
    ],
)
def test_lengths_that_can_be_read_in_two_ways_are_refused(version: int, count: bytes, behind: bytes) -> None:
    """Kafka drops the bits above the 32nd, so it could find a topic where our reader skips."""
    frame = produced(version, [])
    at = len(frame) - 2  # before the number of topics, and the tagged fields
    if version < IDS_FROM and behind:
        behind = b"\x02x" + behind[16:]
    frame = frame[:at] + count + behind + b"\x00" * 20
    with pytest.raises(ProtocolError) as raised:
        pass_whole(frame, version)
    assert raised.value.fault is Fault.MALFORMED_REQUEST


def pass_whole(frame: bytes, version: int) -> None:
    """Pass it on in one piece."""
    walk = plan_produce(frame, version, None, reserved()).check_stream
    assert walk is not None
    walk(len(frame).to_bytes(4, "big") + frame)


@pytest.mark.parametrize("version", [0, 3, 8])
@pytest.mark.parametrize("name", [b"\xff\xff", b"\x80\x00"])
def test_so_are_names_that_are_not_there(version: int, name: bytes) -> None:
    frame = produced(version, [])[:-4] + b"\x00\x00\x00\x01" + name + bytes(30)
    with pytest.raises(ProtocolError, match="without a name"):
        pass_whole(frame, version)


def test_counting_entries_is_bounded() -> None:
    """Entries of six bytes each, of which a broker would read none."""
    one = bytes(4) + b"\x01\x00"
    frame = produced(9, [])[:-2] + b"\x02" + b"\x02x" + varint(2**27) + one * 1_000
    with pytest.raises(ProtocolError, match="more than 100000 topics"):
        pass_whole(frame, 9)
