"""The maximum size of a request for each API: tools' requests are accepted, larger ones refused before decoding."""

import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from kio.index import KioIndexError, load_request_schema
from kio.schema.errors import ErrorCode

from muster.coordinator.group.commands import AnyRequest
from muster.coordinator.group.error_replies import error_replies
from muster.coordinator.group.outcomes import DescribeGroupOutcome, Outcome
from muster.coordinator.load.slices import Slices
from muster.coordinator.observability.metrics import ServerMetrics
from muster.coordinator.sidecar.relay.sasl import MESSAGE_BYTES_MAX
from muster.coordinator.wire import bounds
from muster.coordinator.wire.api import Api, Fault, ProtocolError
from muster.coordinator.wire.bounds import ANSWER_BYTES_MAX, bound_of
from muster.coordinator.wire.dispatch import dispatch
from muster.coordinator.wire.messages import message
from muster.coordinator.wire.registry import APIS
from muster.events.steps import finished
from tests.coordinator.kio_client import PEER, Exchange, frame, keep_response, parse
from tests.coordinator.scripted import ScriptedGroups, new_service
from tests.coordinator.wire.smallest import Path, arrays_of, entry_bytes, request_of

FOUR_MB = 4_194_304


def arrays() -> Iterator[Any]:
    """Every array of every API, in the first and the last offered version."""
    for api in APIS.values():
        for version in sorted({api.versions[0], api.versions[-1]}):
            for path in arrays_of(load_request_schema(api.key, version)):
                yield pytest.param(api.key, version, path, id=f"{api.name}-v{version}-{'.'.join(path)}")


ARRAYS = list(arrays())


def read(content: bytes) -> Any:
    return finished(message(int.from_bytes(content[:2], "big"), int.from_bytes(content[2:4], "big")).read(content))


@pytest.mark.slow
@pytest.mark.parametrize(("api_key", "version", "path"), ARRAYS)
def test_an_array_of_the_smallest_entries_is_read_up_to_the_bound(api_key: int, version: int, path: Path) -> None:
    entries_max = bound_of(api_key).entries_max - (len(path) - 1)
    allowed = min(entries_max, bound_of(api_key).bytes_max // entry_bytes(api_key, version, path) - 100)
    _, body = read(request_of(api_key, version, path, allowed))
    for name in path:
        (body,) = body if isinstance(body, tuple) else (body,)
        body = getattr(body, name)
    assert len(body) == allowed


@pytest.mark.slow
@pytest.mark.parametrize(("api_key", "version", "path"), ARRAYS)
def test_an_array_beyond_the_bound_is_refused_before_it_is_read(api_key: int, version: int, path: Path) -> None:
    """It takes a few comparisons: decoding two million entries took a second."""
    entries = FOUR_MB // entry_bytes(api_key, version, path)
    content = request_of(api_key, version, path, entries)
    began = time.thread_time()
    with pytest.raises(ProtocolError) as raised:
        read(content)
    assert time.thread_time() - began < 0.05
    bound = bound_of(api_key)
    if len(content) > bound.bytes_max:
        assert raised.value.fault is Fault.OVERSIZED_FRAME
        assert f"v{version} of {len(content)} bytes; the limit is {bound.bytes_max}" in str(raised.value)
    else:
        assert raised.value.fault is Fault.TOO_MANY_ENTRIES
        assert f"{entries + len(path) - 1} entries or more, {bound.entries_max} are allowed" in str(raised.value)
    assert APIS[api_key].name in str(raised.value)


@pytest.mark.parametrize("api", APIS.values(), ids=lambda api: api.name)
def test_a_request_that_names_one_thing_is_small_and_no_other_is_boundless(api: Api) -> None:
    """Time depends on the entries, memory on the bytes: at most a hundred thousand, and 64 MiB."""
    bound = bound_of(api.key)
    names_one_thing = not any(list(arrays_of(load_request_schema(api.key, version))) for version in api.versions)
    assert bound.entries_max <= (10 if names_one_thing else 100_000)
    assert bound.bytes_max <= (512 * 1_024 if names_one_thing else 64 * 1_024 * 1_024)


def test_every_api_has_a_bound_and_a_reason_for_it() -> None:
    for api in APIS.values():
        assert bound_of(api.key).entries_max > 0
        assert bound_of(api.key).reason.startswith(f"{api.name}: ")
        assert bound_of(api.key).bytes_max < ANSWER_BYTES_MAX, "socket.request.max.bytes: Kafka takes no more"


STRING_BYTES_MAX = 32_767


@pytest.mark.parametrize("api_key", bounds._BOUNDS)
def test_each_bound_is_of_the_api_that_its_reason_names_and_takes_its_longest_ids(api_key: int) -> None:
    """Including those that only a sidecar decodes: the longest id of a client, of a group and of a transaction."""
    bound, request = bound_of(api_key), newest_request(api_key)
    assert bound.reason.startswith(f"{request.__name__.removesuffix('Request')}: ")
    assert bound.entries_max <= (100_000 if list(arrays_of(request)) else 10)
    assert bound.bytes_max >= 3 * STRING_BYTES_MAX
    assert bound.entries_max >= 10
    if {"SaslHandshake", "SaslAuthenticate"} & {bound.reason.partition(":")[0]}:
        assert bound.bytes_max == MESSAGE_BYTES_MAX, "as where they are relayed"


def newest_request(api_key: int) -> Any:
    known = None
    for version in range(40):
        with suppress(KioIndexError):
            known = load_request_schema(api_key, version)
    assert known is not None
    return known


def test_a_request_may_have_as_many_bytes_as_its_bound() -> None:
    """A heartbeat followed by other bytes, which are ignored; one byte more is too much."""
    bytes_max = bound_of(12).bytes_max
    content = request_of(12, 4, (), 0).ljust(bytes_max, b"\x00")
    client_id, body = read(content)
    assert (client_id, body.group_id) == ("c", "g")
    with pytest.raises(ProtocolError, match=f"{bytes_max + 1} bytes; the limit is {bytes_max}") as raised:
        read(content + b"\x00")
    assert raised.value.fault is Fault.OVERSIZED_FRAME


def test_faults_of_bounds_are_counted() -> None:
    counted = ServerMetrics(APIS).protocol_errors
    assert {counted[fault] for fault in (Fault.TOO_MANY_ENTRIES, Fault.OVERSIZED_ANSWER, Fault.FAILED_REQUEST)} == {0}


# ---- requests of tools ---------------------------------------------------------------------------------

TEN_THOUSAND = range(10_000)
TOOLS: dict[str, tuple[int, dict[str, Any]]] = {
    "DescribeGroups": (
        5,
        {
            "groups": [f"a-group-with-a-longer-name-{n:06}" for n in range(20_000)],
            "include_authorized_operations": False,
        },
    ),
    "FindCoordinator": (
        6,
        {"key_type": 0, "coordinator_keys": [f"a-group-with-a-longer-name-{n:06}" for n in range(20_000)]},
    ),
    "DeleteGroups": (2, {"groups_names": [f"a-group-with-a-longer-name-{n:06}" for n in range(20_000)]}),
    "OffsetFetch": (
        9,
        {
            "groups": [
                {"group_id": f"group-{n}", "topics": None, "member_id": None, "member_epoch": -1} for n in range(20_000)
            ],
            "require_stable": False,
        },
    ),
    "OffsetCommit": (
        9,
        {
            "group_id": "g",
            "generation_id_or_member_epoch": 1,
            "member_id": "m",
            "topics": [
                {
                    "name": f"topic-{topic}",
                    "partitions": [
                        {
                            "partition_index": n,
                            "committed_offset": n,
                            "committed_leader_epoch": 1,
                            "committed_metadata": "m",
                        }
                        for n in range(300)
                    ],
                }
                for topic in range(100)
            ],
        },
    ),
    "LeaveGroup": (
        5,
        {
            "group_id": "g",
            "members": [
                {"member_id": "", "group_instance_id": f"instance-{n}", "reason": "removed"} for n in range(5_000)
            ],
        },
    ),
    "SyncGroup": (
        5,
        {
            "group_id": "g",
            "generation_id": 1,
            "member_id": "m",
            "group_instance_id": None,
            "protocol_type": "consumer",
            "protocol_name": "range",
            "assignments": [{"member_id": f"member-{n}", "assignment": bytes(2_000)} for n in range(5_000)],
        },
    ),
}


@pytest.mark.parametrize("name", TOOLS)
def test_requests_of_tools_are_accepted(name: str) -> None:
    version, body = TOOLS[name]
    read(frame(name, version, **body))


# ---- repeated entries -----------------------------------------------------------------------------------


def described(command: AnyRequest) -> Outcome:
    return DescribeGroupOutcome(protocol_type="x" * 1_000)


def test_a_group_that_is_named_twenty_thousand_times_is_described_once() -> None:
    """A request of 60 KB used to get a response of 31 MB."""
    groups = ScriptedGroups(described)
    exchange = Exchange(
        new_service(groups), "DescribeGroups", 5, groups=["b", *["a"] * 50, "b"], include_authorized_operations=False
    )
    assert [each.group_id for each in exchange.response.groups] == ["b", "a"]
    assert len(groups.commands) == 2


def test_a_coordinator_is_found_once_for_each_key() -> None:
    exchange = Exchange(
        new_service(ScriptedGroups(described)), "FindCoordinator", 4, key_type=0, coordinator_keys=["b", "a", "b"]
    )
    assert [each.key for each in exchange.response.coordinators] == ["b", "a"]


@pytest.mark.parametrize("version", [7, 8, 9])
def test_offsets_are_fetched_once_for_each_partition(version: int) -> None:
    topics = [
        {"name": "orders", "partition_indexes": [1, 0, 1]},
        {"name": "clicks", "partition_indexes": [0]},
        {"name": "orders", "partition_indexes": [2, 0]},
    ]
    group = {"group_id": "g", "topics": topics, "member_id": None, "member_epoch": -1}
    exchange = Exchange(
        new_service(ScriptedGroups(described)),
        "OffsetFetch",
        version,
        require_stable=False,
        **(group if version < 8 else {"groups": [group, {**group, "topics": topics[:1]}]}),
    )
    (answer,) = [exchange.response] if version < 8 else exchange.response.groups
    assert [(topic.name, [each.partition_index for each in topic.partitions]) for topic in answer.topics] == [
        ("orders", [1, 0, 2]),
        ("clicks", [0]),
    ]


def test_a_group_requested_in_full_and_in_part_is_returned_once_in_full() -> None:
    some = {"group_id": "g", "topics": [{"name": "orders", "partition_indexes": [1]}]}
    groups = [
        {"member_id": None, "member_epoch": -1, **each} for each in (some, {"group_id": "g", "topics": None}, some)
    ]
    exchange = Exchange(new_service(ScriptedGroups(described)), "OffsetFetch", 8, groups=groups, require_stable=False)
    assert [(group.group_id, group.topics) for group in exchange.response.groups] == [("g", ())]


def test_of_a_partition_that_is_committed_twice_the_last_offset_is_kept() -> None:
    groups = ScriptedGroups(lambda command: error_replies(command, ErrorCode.none)[0].outcome)
    partitions = [{"partition_index": index, "committed_offset": offset} for index, offset in ((0, 5), (1, 6), (0, 7))]
    exchange = Exchange(
        new_service(groups),
        "OffsetCommit",
        9,
        group_id="g",
        generation_id_or_member_epoch=-1,
        member_id="",
        topics=[{"name": "orders", "partitions": [{"committed_metadata": None, **each} for each in partitions]}],
    )
    (command,) = groups.commands
    assert {(each.partition, each.offset) for each in getattr(command, "offsets")} == {(0, 7), (1, 6)}  # noqa: B009
    assert [each.partition_index for each in exchange.response.topics[0].partitions] == [0, 1, 0]


# ---- answers -------------------------------------------------------------------------------------------


def test_an_answer_that_is_longer_than_any_client_reads_is_not_made() -> None:
    """The connection ends, and nothing of that size was ever in memory."""
    groups = ScriptedGroups(lambda _command: DescribeGroupOutcome(protocol_type="x" * (ANSWER_BYTES_MAX // 4)))
    answers: list[bytes | ProtocolError] = []
    content = frame("DescribeGroups", 5, groups=list("abcdefgh"), include_authorized_operations=False)
    dispatch(content, apis=APIS, service=new_service(groups), peer=PEER, answer=keep_response(answers))
    (answer,) = answers
    assert isinstance(answer, ProtocolError)
    assert answer.fault is Fault.OVERSIZED_ANSWER
    assert "DescribeGroupsRequest v5" in str(answer)
    assert f"{ANSWER_BYTES_MAX} bytes" in str(answer)


async def test_the_rest_of_a_request_is_not_executed_after_its_client_disconnects() -> None:
    groups = ScriptedGroups(described)
    service = new_service(groups)
    service.slices = Slices()
    answers: list[bytes | ProtocolError] = []
    content = frame("DescribeGroups", 5, groups=[str(n) for n in range(5_000)], include_authorized_operations=False)
    cancel = dispatch(content, apis=APIS, service=service, peer=PEER, answer=keep_response(answers))
    assert cancel is not None
    assert service.slices.waiting == 1
    cancel()
    await service.slices.turn()
    assert (service.slices.waiting, groups.commands, answers) == (0, [], [])


async def test_a_large_request_is_answered_as_a_small_one() -> None:
    groups = ScriptedGroups(described)
    service = new_service(groups)
    answers: list[bytes | ProtocolError] = []
    group_ids = [str(n) for n in range(5_000)]
    content = frame("DescribeGroups", 5, groups=group_ids, include_authorized_operations=False)
    dispatch(content, apis=APIS, service=service, peer=PEER, answer=keep_response(answers))
    while not answers:
        await service.slices.turn()
    assert isinstance(answers[0], bytes)
    assert [each.group_id for each in parse("DescribeGroups", 5, answers[0]).groups] == group_ids
