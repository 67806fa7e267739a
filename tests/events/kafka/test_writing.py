"""Writing messages: the bytes are those that kio writes, in as many steps as there is work."""

from dataclasses import fields, is_dataclass
from datetime import timedelta
from importlib import import_module
from io import BytesIO
from typing import Any
from uuid import UUID

import pytest
from kio.index import load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode
from kio.serial import entity_writer
from kio.static.primitive import i32Timedelta

from muster.events.kafka.codec.writing import CHUNK_BYTES, AnswerTooLarge, Output, Unwritable, writer_in_steps
from muster.events.steps import ENTRIES_PER_STEP, WAIT
from tests.coordinator.wire.smallest import item_of

JOIN_GROUP, OFFSET_COMMIT, DESCRIBE_GROUPS, METADATA, FETCH = 11, 8, 15, 3, 1
CONSUMER_GROUP_HEARTBEAT = 68


def entry_of(entity: Any, array: str) -> Any:
    """The class of an array's entries."""
    return next(item_of(field) for field in fields(entity) if field.name == array)


def joined(version: int, members: int, metadata: bytes = b"topics") -> Any:
    response: Any = load_response_schema(JOIN_GROUP, version)
    member: Any = entry_of(response, "members")
    of_each: dict[str, Any] = {"group_instance_id": None} if version >= 5 else {}
    return response(
        throttle_time=i32Timedelta.parse(timedelta(0)),
        error_code=ErrorCode.rebalance_in_progress,
        generation_id=300,
        protocol_name=None if version >= 7 else "range",
        leader="a",
        member_id="größe",
        members=tuple(member(member_id=f"{number}", metadata=metadata, **of_each) for number in range(members)),
    )


def described(version: int, groups: int, members: int) -> Any:
    response: Any = load_response_schema(DESCRIBE_GROUPS, version)
    group: Any = entry_of(response, "groups")
    member: Any = entry_of(group, "members")
    of_group: dict[str, Any] = {
        "error_code": ErrorCode.none,
        "group_state": "Stable",
        "protocol_type": "consumer",
        "protocol_data": "range",
    }
    of_member: dict[str, Any] = {
        "client_id": "app",
        "client_host": "/h",
        "member_metadata": b"m" * 200,
        "member_assignment": b"",
    }
    listed = tuple(member(member_id=f"{number}", **of_member) for number in range(members))
    return response(
        throttle_time=i32Timedelta.parse(timedelta(0)),
        groups=tuple(group(group_id=f"g{number}", members=listed, **of_group) for number in range(groups)),
    )


def committed(version: int, topics: int, partitions: int) -> Any:
    request: Any = load_request_schema(OFFSET_COMMIT, version)
    topic: Any = entry_of(request, "topics")
    partition: Any = entry_of(topic, "partitions")
    listed = tuple(
        partition(partition_index=number, committed_offset=2**40 + number, committed_metadata=[None, "x"][number % 2])
        for number in range(partitions)
    )
    return request(
        group_id="g",
        generation_id_or_member_epoch=1,
        member_id="m",
        topics=tuple(topic(name=f"t{number}", partitions=listed) for number in range(topics)),
    )


def about_topics(version: int, *names: str) -> Any:
    """A request for these topics' metadata; for all topics without names, which is a null array."""
    request: Any = load_request_schema(METADATA, version)
    topic: Any = entry_of(request, "topics")
    return request(
        topics=tuple(topic(name=name) for name in names) if names else None,
        include_cluster_authorized_operations=True,
        include_topic_authorized_operations=False,
    )


def by_id(topic_id: UUID | None) -> Any:
    """A request for the metadata of a topic that is named by its id, or by its name."""
    request: Any = load_request_schema(METADATA, 12)
    topic: Any = entry_of(request, "topics")
    requested = topic(topic_id=topic_id, name="orders" if topic_id is None else None)
    return request(topics=(requested,), include_topic_authorized_operations=False)


def fetched(version: int, records: bytes | None) -> Any:
    """Return a response with a partition that has these records, which may be null, like the array before them."""
    response: Any = load_response_schema(FETCH, version)
    topic: Any = entry_of(response, "responses")
    partition: Any = entry_of(topic, "partitions")
    of_partition = partition(
        partition_index=1, error_code=ErrorCode.none, high_watermark=7, aborted_transactions=None, records=records
    )
    of_whole: dict[str, Any] = {"error_code": ErrorCode.none} if version >= 7 else {}
    topics = (topic(topic="orders", partitions=(of_partition,)),)
    return response(throttle_time=i32Timedelta.parse(timedelta(0)), responses=topics, **of_whole)


def as_values(entity: Any) -> Any:
    """Values that our writers take: mappings, numbers and milliseconds."""
    match entity:
        case ErrorCode():
            return entity.value
        case timedelta():
            return int(entity.total_seconds() * 1000)
        case tuple():
            return [as_values(item) for item in entity]
        case _ if is_dataclass(entity):
            return {field.name: as_values(getattr(entity, field.name)) for field in fields(entity)}
    return entity


def written(entity: Any) -> tuple[list[bytes], list[int]]:
    """The chunks, and the work of each step."""
    output = Output(answer_bytes_max=2**30)
    entity_type: Any = type(entity)
    steps = list(writer_in_steps(entity_type)(output, as_values(entity)))
    return output.chunks(), steps


@pytest.mark.parametrize(
    "entity",
    [
        *(joined(version, members) for version in (2, 5, 6, 7, 9) for members in (0, 1, ENTRIES_PER_STEP + 3)),
        *(described(version, groups, 2) for version in (1, 4, 5) for groups in (0, 3)),
        *(committed(version, topics, 3) for version in (6, 8) for topics in (0, 1, 2)),
        *(fetched(version, records) for version in (4, 12) for records in (None, b"", b"records")),
        *(about_topics(version, *names) for version in (8, 9) for names in ((), ("orders",))),
        *(by_id(topic_id) for topic_id in (None, UUID(int=7))),
    ],
    ids=lambda entity: f"{type(entity).__name__} v{entity.__version__}",
)
def test_the_bytes_are_those_that_kio_writes(entity: Any) -> None:
    """Whatever is null, empty, nested, or more than one step's work."""
    by_kio = BytesIO()
    entity_writer(type(entity))(by_kio, entity)
    assert b"".join(written(entity)[0]) == by_kio.getvalue()


def test_many_entries_are_many_steps() -> None:
    """Each has as many as may be written without a pause; the rest is counted too."""
    _, steps = written(joined(9, 2 * ENTRIES_PER_STEP + 3))
    assert steps == [ENTRIES_PER_STEP, ENTRIES_PER_STEP, 3]


def test_a_long_answer_comes_in_chunks() -> None:
    """None is much longer than 64 KiB, however long an entry's bytes are."""
    chunks, steps = written(joined(9, 10, metadata=b"m" * 32_768))
    assert max(map(len, chunks)) < 2 * 65_536
    assert len(chunks) > 3
    assert len(steps) >= len(chunks) - 1


class FullRoom:
    """Memory that is full at first: `asked` has the size of the response at each request for memory."""

    def __init__(self) -> None:
        self.asked: list[int] = []
        self.taken = 0

    def take(self, size: int) -> None:
        self.taken += size

    def may_grow(self, answer: object) -> bool:
        assert isinstance(answer, Output)
        self.asked.append(self.taken + len(answer.chunk))
        return len(self.asked) > 2

    def give_back(self, answer: object, size: int) -> None:
        self.taken -= size


@pytest.mark.parametrize(
    ("metadata", "assignment", "is_long"),
    [(0, CHUNK_BYTES, True), (CHUNK_BYTES, 0, True), (CHUNK_BYTES // 2, CHUNK_BYTES // 2, True), (100, 100, False)],
)
def test_room_is_waited_for_before_a_long_entry_is_in_memory(metadata: int, assignment: int, is_long: bool) -> None:
    """All its long parts count together. A client over the limit waits with its previous content, for as long as
    needed.
    """
    response: Any = load_response_schema(DESCRIBE_GROUPS, 5)
    values = as_values(described(5, 1, 1))
    values["groups"][0]["members"][0] |= {"member_metadata": bytes(metadata), "member_assignment": bytes(assignment)}
    answer_memory = FullRoom()
    output = Output(answer_bytes_max=2**30, answer_memory=answer_memory)
    steps = list(writer_in_steps(response)(output, values))
    assert steps.count(WAIT) == (2 if is_long else 0)
    assert [size < 100 for size in answer_memory.asked[:3]] == ([True] * 3 if is_long else [])
    written_bytes = sum(map(len, output.chunks()))
    assert written_bytes > metadata + assignment
    assert (answer_memory.taken > metadata + assignment) == is_long
    output.close()
    assert answer_memory.taken == 0


def test_a_field_that_is_left_out_has_its_default() -> None:
    """In entries and around them; a field without a default is missed."""
    entity = joined(9, 2)
    values = as_values(entity)
    assert values.pop("skip_assignment") is False
    for member in values["members"]:
        assert member.pop("group_instance_id") is None
    output = Output(answer_bytes_max=2**30)
    entity_type: Any = type(entity)
    list(writer_in_steps(entity_type)(output, values))
    assert b"".join(output.chunks()) == b"".join(written(entity)[0])
    for owner, field in ((values["members"][1], "metadata"), (values, "protocol_name")):
        without = owner.pop(field)
        with pytest.raises(KeyError, match=field):
            list(writer_in_steps(entity_type)(Output(answer_bytes_max=2**30), values))
        owner[field] = without


def test_values_that_a_version_cannot_represent_are_not_written() -> None:
    """A string of 32 KiB has no place in an old version, and has one in a new."""
    long = "s" * 2**15
    for version in (5, 9):
        values = as_values(joined(version, 0)) | {"leader": long}
        output = Output(answer_bytes_max=2**30)
        steps = writer_in_steps(load_response_schema(JOIN_GROUP, version))(output, values)
        if version == 9:
            assert sum(steps) >= 0
            assert long.encode() in b"".join(output.chunks())
        else:
            with pytest.raises(Unwritable, match="a string of 32768 bytes, 32767 can be written"):
                list(steps)


@pytest.mark.parametrize("version", [5, 9])
def test_the_longest_string_of_an_old_version_is_written(version: int) -> None:
    """It has one byte less than 32 KiB."""
    long = "s" * (2**15 - 1)
    values = as_values(joined(version, 0)) | {"leader": long}
    output = Output(answer_bytes_max=2**30)
    assert sum(writer_in_steps(load_response_schema(JOIN_GROUP, version))(output, values)) >= 0
    assert long.encode() in b"".join(output.chunks())


@pytest.mark.parametrize(("less", "is_too_large"), [(0, False), (1, True)])
def test_an_answer_may_be_as_long_as_its_limit(less: int, is_too_large: bool) -> None:
    """The limit is checked when a chunk is full."""
    output = Output(answer_bytes_max=CHUNK_BYTES - less)
    output.chunk += bytes(CHUNK_BYTES - 1)
    assert list(output.cut()) == []
    output.chunk += b"x"
    if is_too_large:
        with pytest.raises(AnswerTooLarge, match=f"it has more than {CHUNK_BYTES - 1} bytes"):
            list(output.cut())
    else:
        assert list(output.cut()) == []
        assert list(output.chunks()) == [bytes(CHUNK_BYTES - 1) + b"x"]


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize("is_there", [False, True])
def test_a_struct_that_may_be_null_is_written(version: int, is_there: bool) -> None:
    """Like the assignment of a KIP-848 consumer, with its partitions in an array."""
    response: Any = load_response_schema(CONSUMER_GROUP_HEARTBEAT, version)
    assignment: Any = import_module(response.__module__).Assignment
    partitions: Any = entry_of(assignment, "topic_partitions")
    entity = response(
        throttle_time=i32Timedelta.parse(timedelta(0)),
        error_code=ErrorCode.none,
        error_message=None,
        member_id="m",
        member_epoch=1,
        heartbeat_interval=i32Timedelta.parse(timedelta(seconds=5)),
        assignment=assignment(topic_partitions=(partitions(topic_id=UUID(int=1), partitions=(1, 2)),))
        if is_there
        else None,
    )
    buffer = BytesIO()
    entity_writer(response)(buffer, entity)
    chunks, _ = written(entity)
    assert b"".join(chunks) == buffer.getvalue()
