"""Joins that are refused permanently: each is counted, and one log line a minute has client, reason and remedy."""

import asyncio
from typing import Any

import pytest
import structlog
from kio.schema.errors import ErrorCode

from muster.coordinator.group.settings import GroupSettings
from muster.coordinator.log_throttle import LINE_INTERVAL_MS, NAMES_MAX
from muster.coordinator.observability.metrics import REGISTRY
from muster.coordinator.runtime.partition.refused_joins import (
    HOST_SHARE,
    RECORDS_WITHOUT_GROUP_MAX,
    RefusedFor,
)
from muster.events.avro.codec import decode
from muster.events.events import JoinRefused
from muster.events.ids import GroupId
from muster.events.log.memory import MemoryStorage
from tests.simulation.process import SimulatedProcess
from tests.simulation.virtual_time import simulate

PATIENT: dict[str, Any] = {"session_timeout_ms": 600_000, "rebalance_timeout_ms": 600_000}


def refused(reason: RefusedFor) -> float:
    return REGISTRY.get_sample_value("muster_joins_refused_total", {"reason": reason.value}) or 0.0


def lines(reported: list[Any]) -> list[dict[str, Any]]:
    return [line for line in reported if str(line["event"]).startswith("join refused")]


async def started(**settings: Any) -> SimulatedProcess:
    return await SimulatedProcess(MemoryStorage(), settings=GroupSettings(**settings)).start()


@pytest.mark.parametrize(
    ("settings", "join", "error", "reason", "said"),
    [
        (
            {"member_metadata_max_bytes": 200},
            {"metadata": bytes(300)},
            ErrorCode.unknown_server_error,
            RefusedFor.METADATA_SIZE,
            {"size_bytes": 305, "limit_bytes": 200},
        ),
        (
            {"min_session_timeout_ms": 6_000, "max_session_timeout_ms": 300_000},
            {"session_timeout_ms": 2_000_000},
            ErrorCode.invalid_session_timeout,
            RefusedFor.SESSION_TIMEOUT,
            {"session_timeout_ms": 2_000_000, "least_ms": 6_000, "most_ms": 300_000},
        ),
    ],
    ids=("metadata", "session timeout"),
)
def test_joins_that_are_refused_before_their_group_is_looked_up_have_a_line_a_minute(
    settings: dict[str, int], join: dict[str, Any], error: ErrorCode, reason: RefusedFor, said: dict[str, Any]
) -> None:
    """However often a client retries: the next line has the count since."""

    async def story() -> None:
        process = await started(**settings)
        before = refused(reason)
        with structlog.testing.capture_logs() as reported:
            for _ in range(100):
                assert (await process.join("a", **join)).error is error
            await asyncio.sleep(LINE_INTERVAL_MS / 1000)
            await process.join("a", **join)
        assert refused(reason) == before + 101
        assert [line["others_since"] for line in lines(reported)] == [0, 99]
        for line in lines(reported):
            assert (line["group_id"], line["client_id"], line["group_instance_id"]) == ("orders", "client", "a")
            assert {name: line[name] for name in said} == said
        await process.runtime.stop()

    simulate(story())


def test_a_join_to_a_full_group_is_logged_with_the_setting() -> None:
    async def story() -> None:
        process = await started(max_size=1)
        assert (await process.join("a", **PATIENT)).error is ErrorCode.none
        before = refused(RefusedFor.GROUP_FULL)
        with structlog.testing.capture_logs() as reported:
            for _ in range(20):
                assert (await process.join("b")).error is ErrorCode.group_max_size_reached
            await asyncio.sleep(LINE_INTERVAL_MS / 1000)
            await process.join("b")
        assert refused(RefusedFor.GROUP_FULL) == before + 21
        assert [(line["event"], line["max_size"], line["others_since"]) for line in lines(reported)] == [
            ("join refused: the group is full (group.max.size)", 1, 0),
            ("join refused: the group is full (group.max.size)", 1, 19),
        ]
        await process.runtime.stop()

    simulate(story())


@pytest.mark.parametrize(
    ("join", "event", "said"),
    [
        (
            {"offers": ("roundrobin",)},
            "join refused: it offers no protocol that all members of the group support",
            {"offers": ["roundrobin"], "all_members_have": ["range"]},
        ),
        (
            {"protocol_type": "connect"},
            "join refused: the group has another protocol type",
            {"offers_type": "connect", "group_has_type": "consumer"},
        ),
        ({"offers": ()}, "join refused: it offers no protocol", {"offers": []}),
    ],
    ids=("assignor", "type", "nothing"),
)
def test_a_join_with_another_protocol_is_logged_with_both_protocols(
    join: dict[str, Any], event: str, said: dict[str, Any]
) -> None:
    async def story() -> None:
        process = await started()
        assert (await process.join("a", **PATIENT)).error is ErrorCode.none
        before = refused(RefusedFor.PROTOCOL)
        with structlog.testing.capture_logs() as reported:
            assert (await process.join("b", **join)).error is ErrorCode.inconsistent_group_protocol
        (line,) = lines(reported)
        assert line["event"] == event
        assert {name: line[name] for name in said} == said
        assert line["way_out"]
        assert refused(RefusedFor.PROTOCOL) == before + 1
        await process.runtime.stop()

    simulate(story())


def test_a_join_without_a_group_id_is_logged() -> None:
    async def story() -> None:
        process = await started()
        process.group_id = GroupId("")
        with structlog.testing.capture_logs() as reported:
            assert (await process.join("a")).error is ErrorCode.invalid_group_id
        (line,) = lines(reported)
        assert line["way_out"] == "set the client's group.id"
        await process.runtime.stop()

    simulate(story())


def test_transient_refusals_are_not_logged() -> None:
    """A client whose member id is unknown retries without it at once."""

    async def story() -> None:
        process = await started()
        with structlog.testing.capture_logs() as reported:
            assert (await process.join(member_id="never-there")).error is ErrorCode.unknown_member_id
        assert lines(reported) == []
        await process.runtime.stop()

    simulate(story())


def test_a_join_that_fails_for_another_reason_is_not_reported_as_metadata_that_is_too_large() -> None:
    """Both get UNKNOWN_SERVER_ERROR: a client may use a member id with an instance id though it got it without one."""

    async def story() -> None:
        process = await started(member_metadata_max_bytes=200)
        before = refused(RefusedFor.METADATA_SIZE)
        member_id = (await process.join(requires_known_member_id=True)).member_id
        with structlog.testing.capture_logs() as reported:
            joined = await process.join("a", member_id)
            assert joined.error is ErrorCode.unknown_server_error
        assert lines(reported) == []
        assert refused(RefusedFor.METADATA_SIZE) == before
        await process.runtime.stop()

    simulate(story())


def refusals_in(storage: MemoryStorage) -> list[JoinRefused]:
    events = [decode(each.value) for records in storage.records for each in records if each.value is not None]
    return [event for event in events if isinstance(event, JoinRefused)]


def test_refusals_by_an_unknown_group_are_written_once_a_minute() -> None:
    """The next record has the count since; the group does not exist afterwards, nor after a takeover."""

    async def story() -> None:
        storage = MemoryStorage()
        process = await SimulatedProcess(storage).start()
        for _ in range(20):
            assert (await process.join("a", session_timeout_ms=1)).error is ErrorCode.invalid_session_timeout
        await asyncio.sleep(LINE_INTERVAL_MS / 1000)
        await process.join("a", session_timeout_ms=1)
        assert [each.suppressed for each in refusals_in(storage)] == [0, 19]
        assert not process.runtime.list_groups()
        await process.runtime.stop()
        successor = await SimulatedProcess(storage).start()
        assert not successor.runtime.list_groups()
        await successor.runtime.stop()

    simulate(story())


def test_made_up_group_ids_fill_no_log() -> None:
    """A limited number is written per minute, for each host and in all; each join is refused as before."""

    async def story() -> None:
        storage = MemoryStorage(partitions=8)
        process = await SimulatedProcess(storage).start()
        for number in range(3 * RECORDS_WITHOUT_GROUP_MAX):
            process.group_id = GroupId(f"made-up-{number}")
            assert (await process.join("a", session_timeout_ms=1)).error is ErrorCode.invalid_session_timeout
        assert len(refusals_in(storage)) == RECORDS_WITHOUT_GROUP_MAX // HOST_SHARE
        for number in range(3 * RECORDS_WITHOUT_GROUP_MAX):
            process.client_host = f"/10.0.0.{number % 100}"
            process.group_id = GroupId(f"made-up-again-{number}")
            await process.join("a", session_timeout_ms=1)
        assert len(refusals_in(storage)) == RECORDS_WITHOUT_GROUP_MAX
        await asyncio.sleep(LINE_INTERVAL_MS / 1000)
        process.group_id = GroupId("made-up-a-minute-later")
        await process.join("a", session_timeout_ms=1)
        assert len(refusals_in(storage)) == RECORDS_WITHOUT_GROUP_MAX + 1
        await process.runtime.stop()

    simulate(story())


def test_a_refusal_beyond_the_limit_of_its_host_is_counted_by_the_next_record_of_its_group() -> None:
    async def story() -> None:
        storage = MemoryStorage(partitions=1)
        process = await SimulatedProcess(storage).start()
        await process.join("a", session_timeout_ms=1)
        for number in range(RECORDS_WITHOUT_GROUP_MAX // HOST_SHARE - 1):
            process.group_id = GroupId(f"made-up-{number}")
            await process.join("a", session_timeout_ms=1)
        process.group_id = GroupId("orders")
        for _ in range(3):
            await process.join("a", session_timeout_ms=1)
        await asyncio.sleep(LINE_INTERVAL_MS / 1000)
        await process.join("a", session_timeout_ms=1)
        assert [each.suppressed for each in refusals_in(storage) if each.group_id == "orders"] == [0, 3]
        await process.runtime.stop()

    simulate(story())


def test_ten_hosts_that_make_up_group_ids_hide_no_real_group() -> None:
    """Each may write a fifth of what the others have left, so an eleventh host is recorded, too."""

    async def story() -> None:
        storage = MemoryStorage(partitions=1)
        process = await SimulatedProcess(storage).start()
        for number in range(1_000):
            process.client_host, process.group_id = f"/10.0.0.{number // 100}", GroupId(f"made-up-{number}")
            await process.join("a", session_timeout_ms=1)
        process.client_host, process.group_id = "/10.0.1.1", GroupId("orders")
        await process.join("a", session_timeout_ms=1)
        assert [each.group_id for each in refusals_in(storage)][-1] == "orders"
        await process.runtime.stop()

    simulate(story())


def test_made_up_group_ids_hide_no_real_group() -> None:
    """Refusals of a client at another host are recorded, counted and logged as if there were no made-up ids."""

    async def story() -> None:
        storage = MemoryStorage(partitions=1)
        process = await SimulatedProcess(storage).start()
        with structlog.testing.capture_logs() as reported:
            for minute in range(2):
                for number in range(2_000):
                    process.client_host, process.group_id = "/10.0.0.66", GroupId(f"made-up-{minute}-{number}")
                    await process.join("a", session_timeout_ms=1)
                    if number % 500 == 0:
                        process.client_host, process.group_id = "/10.0.0.1", GroupId("orders")
                        await process.join("a", session_timeout_ms=1)
                await asyncio.sleep(LINE_INTERVAL_MS / 1000)
        recorded = [each.suppressed for each in refusals_in(storage) if each.group_id == "orders"]
        assert recorded == [0, 3]
        assert [line["others_since"] for line in lines(reported) if line["group_id"] == "orders"] == [0, 3]
        await process.runtime.stop()

    simulate(story())


def test_made_up_group_ids_share_a_line() -> None:
    """Ten have lines of their own; a client that makes up more cannot fill the log, in any number of partitions."""

    async def story() -> None:
        process = await SimulatedProcess(MemoryStorage(partitions=8)).start()
        with structlog.testing.capture_logs() as reported:
            for number in range(500):
                process.group_id = GroupId(f"made-up-{number}")
                await process.join("a", session_timeout_ms=1)
        assert len(lines(reported)) == NAMES_MAX + 1
        await process.runtime.stop()

    simulate(story())
