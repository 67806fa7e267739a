"""Reading messages with unknown tagged fields and errors, and the limits on them."""

from dataclasses import replace
from datetime import timedelta
from io import BytesIO
from typing import NoReturn

import pytest
from kio.index import load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode
from kio.schema.streams_group_describe.v0.response import (
    DescribedGroup,
    StreamsGroupDescribeResponse,
    Subtopology,
    Topology,
)
from kio.schema.types import GroupId as KafkaGroupId
from kio.serial import entity_writer
from kio.serial.errors import BufferUnderflow
from kio.static.primitive import i32, i32Timedelta

from muster.events.kafka.codec import reading
from muster.events.kafka.codec.primitives import TAGGED_FIELDS_MAX, tagged_fields_size, write_uvarint
from muster.events.kafka.codec.reading import STRING_BYTES_MAX, reader_in_steps
from muster.events.kafka.codec.walk import InSteps, make_for
from muster.events.steps import ENTRIES_PER_STEP, Allowance, TooManyEntries, finished

EMPTY = b"\x07\x00"
"""A field without content."""


@pytest.mark.parametrize("count", [0, 1, TAGGED_FIELDS_MAX])
def test_the_number_of_skipped_tagged_fields_is_limited(count: int) -> None:
    fields = bytes([count]) + count * EMPTY
    assert tagged_fields_size(b"before" + fields + b"behind", 6) == len(fields)


def test_more_entries_are_not_read() -> None:
    """A request of a megabyte would have half a million."""
    with pytest.raises(BufferUnderflow, match=f"announces {TAGGED_FIELDS_MAX + 1} tagged fields"):
        tagged_fields_size(bytes([TAGGED_FIELDS_MAX + 1]) + 2 * TAGGED_FIELDS_MAX * EMPTY, 0)


def test_a_field_that_reaches_beyond_the_end_is_refused() -> None:
    assert tagged_fields_size(b"\x01\x07\x02xx", 0) == 5
    with pytest.raises(BufferUnderflow, match="announces a length of 3 bytes"):
        tagged_fields_size(b"\x01\x07\x03xx", 0)


@pytest.mark.parametrize(
    ("partition", "error"),
    [
        (b"\x00\x00\x00\x01\x00\x19\x00", ErrorCode.unknown_member_id),
        (b"\x00\x00\x00\x01\x27\x0f\x00", ErrorCode.unknown_server_error),
        (b"\x00\x00\x00\x01\x00\x19\x01\x05\x02hi", ErrorCode.unknown_member_id),
        (b"\x00\x00\x00\x01\x27\x0f\x02\x05\x02hi\x06\x00", ErrorCode.unknown_server_error),
    ],
    ids=["all of it is known", "an error", "a tagged field", "both"],
)
def test_fields_unknown_to_kio_are_read_among_known_ones(partition: bytes, error: ErrorCode) -> None:
    """OffsetCommit v8: kio reads a partition as a whole."""
    known = b"\x00\x00\x00\x02\x00\x00\x00"
    answer = bytes(4) + b"\x02" + b"\x02t" + b"\x04" + known + partition + known + b"\x00" + b"\x00"
    read = reader_in_steps(load_response_schema(8, 8))(b"before" + answer + b"behind", 6, Allowance(4))
    body, size = finished(read)
    assert size == len(answer)
    (topic,) = body.topics
    assert [(each.partition_index, each.error_code) for each in topic.partitions] == [
        (2, ErrorCode.none),
        (1, error),
        (2, ErrorCode.none),
    ]


def test_bytes_are_read_in_versions_with_and_without_tagged_fields() -> None:
    """SyncGroup v3 and v4: the same assignment, with different encodings of its length."""
    for version, answer in ((3, bytes(6) + b"\x00\x00\x00\x02ab"), (4, bytes(6) + b"\x03ab" + b"\x00")):
        body, size = finished(reader_in_steps(load_response_schema(14, version))(answer, 0, Allowance(0)))
        assert (body.assignment, size) == (b"ab", len(answer))


def test_records_are_read_in_versions_with_and_without_tagged_fields() -> None:
    """Produce v8 and v9; one partition has some, and one none."""
    begin, some = b"\x00\x01" + bytes(4), b"ab"
    old = begin + b"\x00\x00\x00\x01\x00\x01t" + b"\x00\x00\x00\x02"
    old += bytes(4) + b"\x00\x00\x00\x02" + some + bytes(4) + b"\xff\xff\xff\xff"
    new = begin + b"\x02\x02t" + b"\x03" + bytes(4) + b"\x03" + some + b"\x00" + bytes(4) + b"\x00" + b"\x00" + bytes(2)
    for version, request in ((8, b"\xff\xff" + old), (9, b"\x00" + new)):
        body, size = finished(reader_in_steps(load_request_schema(0, version))(request, 0, Allowance(3)))
        assert size == len(request)
        assert [each.records for each in body.topic_data[0].partition_data] == [some, None]


def test_a_struct_of_long_strings_is_read_and_one_that_is_too_long_is_not() -> None:
    """Each has a bound, not all of them together."""

    def partition(metadata: int) -> bytes:
        out = bytearray(bytes(4) + bytes(8) + bytes(4))
        write_uvarint(out, metadata + 1)
        return bytes(out) + metadata * b"m" + b"\x00"

    def read(metadata: int) -> int:
        request = (
            b"\x02g" + bytes(4) + b"\x02m" + b"\x00" + b"\x02" + b"\x02t" + b"\x02" + partition(metadata) + bytes(2)
        )
        body, size = finished(reader_in_steps(load_request_schema(8, 8))(request, 0, Allowance(2)))
        assert size == len(request)
        return len(body.topics[0].partitions[0].committed_metadata)

    assert [read(length) for length in (0, 200, STRING_BYTES_MAX)] == [0, 200, STRING_BYTES_MAX]
    with pytest.raises(ValueError, match=f"more than {STRING_BYTES_MAX} bytes"):
        read(STRING_BYTES_MAX + 1)


@pytest.mark.parametrize("text", ["m" * STRING_BYTES_MAX, "m" * 1_000_000])
def test_an_answer_may_have_strings_of_any_length(text: str) -> None:
    """The members of a large group are the value of one config, and an error message may name many things."""
    configs, failure = load_response_schema(32, 4), load_response_schema(10, 6)
    value = bytes([2]) + b"\x08members" + _compact(text) + b"\x01\x01\x00\x01\x02\x01\x00"
    answer = bytes(4) + b"\x02" + bytes(2) + b"\x00" + b"\x20" + b"\x02g" + value + bytes(2)
    body, size = finished(reader_in_steps(configs)(answer, 0, Allowance(2)))
    assert (body.results[0].configs[0].value, size) == (text, len(answer))
    answer = bytes(4) + b"\x02" + b"\x02g" + bytes(4) + b"\x02h" + bytes(4) + bytes(2) + _compact(text) + bytes(2)
    body, size = finished(reader_in_steps(failure)(answer, 0, Allowance(1)))
    assert (body.coordinators[0].error_message, size) == (text, len(answer))


def _compact(text: str) -> bytes:
    out = bytearray()
    write_uvarint(out, len(text) + 1)
    return bytes(out) + text.encode()


def test_the_arrays_of_a_message_have_a_common_limit() -> None:
    """Three topics of one partition each, in OffsetCommit v8: six."""
    topic = b"\x02t" + b"\x02" + bytes(16) + b"\x01\x00" + b"\x00"
    request = b"\x02g" + bytes(4) + b"\x02m" + b"\x00" + b"\x04" + 3 * topic + b"\x00"
    read = reader_in_steps(load_request_schema(8, 8))
    assert finished(read(request, 0, Allowance(6)))[1] == len(request)
    with pytest.raises(TooManyEntries, match="it has 6 entries or more, 5 are allowed"):
        finished(read(request, 0, Allowance(5)))


def sync_group(assignments: int, assignment_bytes: int) -> tuple[bytes, int]:
    """Return a SyncGroup v5 with assignments of one length; and the number of bytes of one of them."""
    item = bytearray(b"\x02m")
    write_uvarint(item, assignment_bytes + 1)
    item += bytes(assignment_bytes) + b"\x00"
    count = bytearray()
    write_uvarint(count, assignments + 1)
    start = b"\x02g" + bytes(4) + b"\x02m" + b"\x00" + b"\x02t" + b"\x02p"
    return start + count + assignments * item + b"\x00", len(item)


def test_long_bytes_are_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """They have no limit like that of strings: an assignment may have megabytes."""
    request, _ = sync_group(assignments=1, assignment_bytes=STRING_BYTES_MAX + 1)
    form = load_request_schema(14, 5)

    def read_again(buffer: bytes, offset: int) -> NoReturn:
        pytest.fail("it was read field by field, too")

    monkeypatch.setattr(reading, "_struct_reader", lambda *_, **__: read_again)
    read = make_for(form, reading._Readers(has_bound=True))
    assert isinstance(read, InSteps)
    body, _ = finished(read.call(request, 0, Allowance(1)))
    assert len(body.assignments[0].assignment) == STRING_BYTES_MAX + 1


UNKNOWN_FIELD = b"\x01\x2a\x02hi"


def test_a_long_field_beside_one_that_is_not_known_is_read() -> None:
    """Then it is read field by field: neither a request's bytes nor a response's strings have their own limit."""
    long = STRING_BYTES_MAX + 1
    request, _ = sync_group(assignments=1, assignment_bytes=long)
    assert request.endswith(bytes(2))
    body, size = finished(
        reader_in_steps(load_request_schema(14, 5))(request[:-2] + UNKNOWN_FIELD + b"\x00", 0, Allowance(1))
    )
    assert (len(body.assignments[0].assignment), size) == (long, len(request) + len(UNKNOWN_FIELD) - 1)
    answer = bytes(4) + b"\x02" + b"\x02g" + bytes(4) + b"\x02h" + bytes(4) + bytes(2) + _compact("m" * long)
    body, _ = finished(reader_in_steps(load_response_schema(10, 6))(answer + UNKNOWN_FIELD + b"\x00", 0, Allowance(1)))
    assert body.coordinators[0].error_message == "m" * long


def test_short_entries_are_read_many_at_a_time_and_long_ones_to_a_megabyte() -> None:
    """A step for each would cost more than the reading."""

    def steps(assignments: int, assignment_bytes: int) -> list[int]:
        request, _ = sync_group(assignments, assignment_bytes)
        return list(reader_in_steps(load_request_schema(14, 5))(request, 0, Allowance(assignments)))

    assert steps(2 * ENTRIES_PER_STEP + 3, 100) == [ENTRIES_PER_STEP, ENTRIES_PER_STEP, 3]
    assert steps(25, 50_000) == [ENTRIES_PER_STEP, 4], "21 of them are over a megabyte, which is as many"


@pytest.mark.parametrize("assignment_bytes", [100, 50_000, 3_000_000])
def test_no_step_reads_more_than_some_entries_or_a_megabyte(assignment_bytes: int) -> None:
    """An entry is read whole, however long it is; a step of long ones counts as many, so that others have turns."""
    count = 40
    request, item_bytes = sync_group(assignments=count, assignment_bytes=assignment_bytes)
    steps = list(reader_in_steps(load_request_schema(14, 5))(request, 0, Allowance(count)))
    assert len(steps) >= count / max(1, min(ENTRIES_PER_STEP, 1_048_576 // item_bytes + 1))
    assert sum(steps) >= count
    if item_bytes > 1_048_576:
        assert sum(steps) >= count * ENTRIES_PER_STEP


@pytest.mark.parametrize("subtopologies", [None, 0, 3])
@pytest.mark.parametrize("has_topology", [True, False])
def test_a_struct_that_may_be_null_is_read(has_topology: bool, subtopologies: int | None) -> None:
    """StreamsGroupDescribe (KIP-1071): a group has a topology or none, as every group does that is no streams group."""
    within = Subtopology(subtopology_id="s", state_changelog_topics=(), repartition_source_topics=())
    topology = Topology(epoch=i32(3), subtopologies=None if subtopologies is None else subtopologies * (within,))
    group = DescribedGroup(
        error_code=ErrorCode.none,
        group_id=KafkaGroupId("g"),
        group_state="Stable",
        group_epoch=i32(1),
        assignment_epoch=i32(1),
        topology=topology if has_topology else None,
        members=(),
    )
    answer = StreamsGroupDescribeResponse(throttle_time=i32Timedelta.parse(timedelta(0)), groups=(group, group))
    written = BytesIO()
    entity_writer(StreamsGroupDescribeResponse)(written, answer)
    read = reader_in_steps(StreamsGroupDescribeResponse)(b"before" + written.getvalue() + b"behind", 6, Allowance(100))
    body, size = finished(read)
    assert size == len(written.getvalue())
    assert body.groups == (group, group)


def test_any_nonnegative_marker_means_that_a_struct_is_present() -> None:
    """Kafka writes 1, and reads any such byte (KIP-893)."""
    empty = DescribedGroup(
        error_code=ErrorCode.none,
        group_id=KafkaGroupId("g"),
        group_state="Stable",
        group_epoch=i32(1),
        assignment_epoch=i32(1),
        topology=None,
        members=(),
    )
    topology = Topology(epoch=i32(3), subtopologies=())

    def written(group: DescribedGroup) -> bytes:
        out = BytesIO()
        answer = StreamsGroupDescribeResponse(throttle_time=i32Timedelta.parse(timedelta(0)), groups=(group,))
        entity_writer(StreamsGroupDescribeResponse)(out, answer)
        return out.getvalue()

    without, whole = written(empty), bytearray(written(replace(empty, topology=topology)))
    at = next(at for at, byte in enumerate(without) if whole[at] != byte)
    for byte in (0, 1, 127):
        whole[at] = byte
        body, _ = finished(reader_in_steps(StreamsGroupDescribeResponse)(bytes(whole), 0, Allowance(9)))
        assert body.groups[0].topology == topology
    for byte in (255, 128):
        left = without[:at] + bytes([byte]) + without[at + 1 :]
        body, size = finished(reader_in_steps(StreamsGroupDescribeResponse)(left, 0, Allowance(9)))
        assert (body.groups[0].topology, size) == (None, len(without))
