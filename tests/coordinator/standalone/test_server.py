"""The listener with real sockets: order, limits, back-pressure, idle connections, stopping."""

import asyncio
import gc
import tracemalloc
from datetime import timedelta
from random import Random
from typing import Any

import msgspec
import pytest
import structlog
from kio.schema.errors import ErrorCode
from prometheus_client import CollectorRegistry

from muster.coordinator.group.commands import DescribeGroup, Heartbeat, JoinGroup
from muster.coordinator.group.outcomes import JoinGroupOutcome, Superseded
from muster.coordinator.net.hosts import java_host
from muster.coordinator.standalone.server import ServerSettings
from muster.coordinator.wire.api import Fault
from muster.coordinator.wire.registry import APIS
from muster.events.ids import MemberId
from tests.coordinator.kio_client import frame, parse, with_length
from tests.coordinator.running_server import DESCRIBE, HEARTBEAT, JOIN, JOINED, WITHIN_S, Running, running
from tests.coordinator.scripted import CLUSTER
from tests.waiting import until

FETCH_KEY = 1
FOR_HOURS: dict[str, Any] = {
    "max_wait": timedelta(hours=9),
    "min_bytes": 1,
    "topics": [
        {
            "topic_id": CLUSTER.topics["orders"].topic_id,
            "partitions": [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1}],
        }
    ],
    "replica_id": -1,
    "forgotten_topics_data": [],
}


async def test_pipelined_requests_are_answered_in_their_order() -> None:
    async with running() as subject:
        client = await subject.connect()
        for number in range(50):
            client.send("Heartbeat", number % 5, number, **HEARTBEAT)
        for number in range(50):
            correlation_id, payload = await client.answer()
            assert correlation_id == number
            assert parse("Heartbeat", number % 5, payload).error_code is ErrorCode.none


async def test_a_parked_join_holds_up_its_own_connection_alone() -> None:
    async with running() as subject:
        first, second = await subject.connect(), await subject.connect()
        first.send("JoinGroup", 3, 1, **JOIN)
        first.send("Heartbeat", 4, 2, **HEARTBEAT)
        await until(lambda: len(subject.groups.parked) == 1)
        second.send("Heartbeat", 4, 3, **HEARTBEAT)
        assert (await second.answer())[0] == 3
        assert [type(command) for command in subject.groups.commands] == [JoinGroup, Heartbeat]
        subject.groups.release(JOINED)
        assert len(subject.groups.commands) == 2  # nothing is started from within a reply
        assert [(await first.answer())[0], (await first.answer())[0]] == [1, 2]
        assert [type(command) for command in subject.groups.commands] == [JoinGroup, Heartbeat, Heartbeat]


async def test_a_known_heartbeat_is_answered_without_asking_the_group() -> None:
    async with running() as subject:
        subject.groups.gives_tickets = True
        client = await subject.connect()
        for number in range(3):
            subject.now_ms = number
            client.send("Heartbeat", 4, number, **HEARTBEAT)
            assert (await client.answer()) == (number, b"\x00\x00\x00\x00\x00\x00\x00\x00")
        (ticket,) = subject.groups.tickets
        assert ticket.touched == [1, 2]
        assert len(subject.groups.commands) == 1
        assert subject.metrics.fast_heartbeats == 2
        ticket.valid = False
        client.send("Heartbeat", 4, 9, **HEARTBEAT)
        assert (await client.answer())[0] == 9
        assert len(subject.groups.commands) == 2


async def test_tickets_belong_to_one_connection() -> None:
    async with running() as subject:
        subject.groups.gives_tickets = True
        for number in (1, 2):
            client = await subject.connect()
            client.send("Heartbeat", 4, **HEARTBEAT)
            await client.answer()
            assert len(subject.groups.commands) == number


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (b"\xff\xff\xff\xff", Fault.NEGATIVE_LENGTH),
        (b"\x7f\xff\xff\xff", Fault.OVERSIZED_FRAME),
        (b"\x00\x00\x00\x02", Fault.SHORT_FRAME),
        (with_length(b"\x00\x16" + bytes(20)), Fault.UNKNOWN_API),
        (with_length(b"\x00\x0c\x00\x63" + bytes(20)), Fault.UNSUPPORTED_VERSION),
        (with_length(b"\x00\x0c\x00\x04" + bytes(4)), Fault.MALFORMED_REQUEST),
    ],
)
async def test_bytes_that_make_no_sense_close_their_connection_alone(content: bytes, fault: Fault) -> None:
    async with running() as subject:
        first, second = await subject.connect(), await subject.connect()
        first.send("Heartbeat", 4, 1, **HEARTBEAT)
        first.writer.write(content)
        assert (await first.answer())[0] == 1
        assert await first.is_closed()
        second.send("Heartbeat", 4, 2, **HEARTBEAT)
        assert (await second.answer())[0] == 2
        assert subject.metrics.protocol_errors == {fault: 1}


@pytest.mark.parametrize("refused", [b"\x00\x0e\x00\x63", b"\x00\x0e\x00\x05"])
async def test_nothing_of_a_refused_request_stays_in_memory(refused: bytes) -> None:
    """Not even until the garbage collector runs, which may be after many of them."""
    content = with_length(refused + bytes([255]) * 1_000_000)
    async with running() as subject:
        gc.collect()
        gc.disable()
        tracemalloc.start()
        try:
            begun, _ = tracemalloc.get_traced_memory()
            for _ in range(20):
                client = await subject.connect()
                client.writer.write(content)
                assert await client.is_closed()
            await until(lambda: sum(subject.metrics.protocol_errors.values()) == 20)
            left, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
            gc.enable()
        assert left - begun < 5 * len(content)


async def test_an_attempt_to_authenticate_is_logged_with_advice() -> None:
    async with running() as subject:
        client = await subject.connect()
        with structlog.testing.capture_logs() as reported:
            client.writer.write(with_length(b"\x00\x11\x00\x01" + bytes(6) + b"\x00\x05PLAIN"))
            assert await client.is_closed()
    (line,) = reported
    assert (line["event"], line["peer"]) == ("connection closed", "/127.0.0.1")
    assert line["cause"] == "SaslHandshake: no client authenticates here; its security.protocol should be PLAINTEXT"


async def test_random_bytes_never_disturb_the_next_connection() -> None:
    random = Random(7)
    async with running() as subject:
        for _ in range(60):
            noisy, quiet = await subject.connect(), await subject.connect()
            noisy.writer.write(random.randbytes(random.randrange(1, 60)))
            name, version = random.choice([("JoinGroup", 9), ("OffsetCommit", 10), ("Fetch", 18), ("Metadata", 12)])
            key = next(key for key, api in APIS.items() if api.name == name)
            start = key.to_bytes(2, "big") + version.to_bytes(2, "big") + b"\x00\x00\x00\x01\xff\xff\x00"
            noisy.writer.write(with_length(start + random.randbytes(random.randrange(60))))
            noisy.writer.write_eof()
            quiet.send("Heartbeat", 4, 5, **HEARTBEAT)
            assert (await quiet.answer())[0] == 5


async def test_an_answer_that_cannot_be_written_closes_the_connection() -> None:
    """The code that replied gets no error (known bug S8)."""
    async with running() as subject:
        client = await subject.connect()
        client.send("JoinGroup", 3, **JOIN)
        await until(lambda: len(subject.groups.parked) == 1)
        subject.groups.release(msgspec.structs.replace(JOINED, member_id=MemberId("m" * 40_000)))
        assert await client.is_closed()
        assert subject.metrics.protocol_errors == {Fault.UNWRITABLE_RESPONSE: 1}


async def test_the_reply_to_a_client_that_is_gone_is_dropped() -> None:
    async with running() as subject:
        client = await subject.connect()
        client.send("JoinGroup", 3, **JOIN)
        await until(lambda: len(subject.groups.parked) == 1)
        client.writer.close()
        await until(lambda: subject.metrics.connections == 0)
        subject.groups.release(JOINED)


async def test_a_client_that_is_gone_leaves_no_timer_behind() -> None:
    async with running() as subject:
        sweep = len(subject.timers.pending)
        client = await subject.connect()
        client.send("Fetch", 13, **FOR_HOURS)
        await until(lambda: len(subject.timers.pending) == sweep + 1)
        client.writer.close()
        await until(lambda: len(subject.timers.pending) == sweep)


async def test_idle_connections_are_closed_but_parked_ones_are_not() -> None:
    """A member that waits for its group is idle by nature (P17)."""
    async with running(connections_max_idle_ms=1_000) as subject:
        idle, busy, parked = [await subject.connect() for _ in range(3)]
        parked.send("JoinGroup", 3, **JOIN)
        idle.send("Heartbeat", 4, **HEARTBEAT)
        await idle.answer()
        await until(lambda: len(subject.groups.parked) == 1 and subject.metrics.connections == 3)
        subject.now_ms += 999
        subject.timers.pass_all()
        busy.send("Heartbeat", 4, **HEARTBEAT)
        await busy.answer()
        subject.now_ms += 1
        subject.timers.pass_all()
        assert await idle.is_closed()
        await until(lambda: subject.metrics.connections == 2)
        assert subject.metrics.connections_idle_closed == 1
        busy.send("Heartbeat", 4, **HEARTBEAT)
        await busy.answer()
        subject.groups.release(JOINED)
        await parked.answer()


async def test_a_connection_whose_join_is_superseded_is_idle() -> None:
    """Its member waits on another connection. This one gets no response any more, and new data does not keep it
    open.
    """
    async with running(connections_max_idle_ms=1_000) as subject:
        superseded, parked = await subject.connect(), await subject.connect()
        superseded.send("JoinGroup", 3, **JOIN)
        await until(lambda: len(subject.groups.parked) == 1)
        parked.send("JoinGroup", 3, **JOIN)
        await until(lambda: len(subject.groups.parked) == 2)
        subject.groups.release(Superseded())
        subject.now_ms += 999
        before = subject.metrics.bytes_received
        superseded.send("Heartbeat", 4, **HEARTBEAT)
        await until(lambda: subject.metrics.bytes_received > before)
        subject.now_ms += 1
        subject.timers.pass_all()
        assert await superseded.is_closed()
        await until(lambda: subject.metrics.connections == 1)
        assert subject.metrics.connections_idle_closed == 1
        assert [type(command) for command in subject.groups.commands] == [JoinGroup, JoinGroup]
        subject.groups.release(JOINED)
        await parked.answer()


async def test_a_client_whose_join_is_superseded_may_leave() -> None:
    async with running() as subject:
        client = await subject.connect()
        client.send("JoinGroup", 3, **JOIN)
        await until(lambda: len(subject.groups.parked) == 1)
        subject.groups.release(Superseded())
        client.writer.close()
        await until(lambda: subject.metrics.connections == 0)


async def test_a_fetch_that_waits_for_longer_than_a_connection_may_be_idle_is_closed() -> None:
    """The client chooses its wait time, as in Kafka."""
    async with running(connections_max_idle_ms=1_000) as subject:
        client = await subject.connect()
        client.send("Fetch", 13, **FOR_HOURS)
        await until(lambda: subject.metrics.requests[FETCH_KEY, 13] == 1)
        subject.now_ms += 1_000
        subject.timers.pass_all(up_to_ms=1_000)
        assert await client.is_closed()


async def test_a_closed_server_leaves_no_timer_behind() -> None:
    """Open connections are ended by the shutdown, not for being idle."""
    async with running() as subject:
        assert len(subject.timers.pending) == 1
        subject.server.stop_listening()
        assert subject.timers.pending == {}


async def test_a_client_that_does_not_read_is_not_served_on() -> None:
    """Its responses would fill the memory: requests are read again when it has read."""
    async with running() as subject:
        client = await subject.connect()
        count = 3_000
        for number in range(count):
            client.send("DescribeGroups", 0, number, **DESCRIBE)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1):
                await until(lambda: len(subject.groups.commands) == count)
        for number in range(count):
            assert (await client.answer())[0] == number
        assert len(subject.groups.commands) == count


async def test_reading_behind_a_parked_request_is_bounded() -> None:
    async with running(waiting_bytes_max=10_000) as subject:
        subject.groups.gives_tickets = True
        client = await subject.connect()
        client.send("JoinGroup", 3, 0, **JOIN)
        await until(lambda: len(subject.groups.parked) == 1)
        count = 400_000
        content = with_length(frame("Heartbeat", 4, **HEARTBEAT))
        client.writer.write(content * count)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1):
                await client.writer.drain()
        assert subject.metrics.bytes_received < 10_000 + 1_000_000
        subject.groups.release(JOINED)
        await client.answer()
        heartbeat_answer_bytes = 16
        async with asyncio.timeout(WITHIN_S):
            await client.reader.readexactly(count * heartbeat_answer_bytes)


async def test_parked_requests_are_answered_before_the_end() -> None:
    async with running() as subject:
        client = await subject.connect()
        client.send("JoinGroup", 3, 5, **JOIN)
        await until(lambda: len(subject.groups.parked) == 1)
        subject.server.stop_listening()
        with pytest.raises(ConnectionRefusedError):
            await subject.connect()
        subject.groups.release(JoinGroupOutcome(error=ErrorCode.not_coordinator, member_id=MemberId("")))
        await subject.server.close()
        correlation_id, payload = await client.answer()
        assert (correlation_id, parse("JoinGroup", 3, payload).error_code) == (5, ErrorCode.not_coordinator)
        assert await client.is_closed()


async def test_a_client_that_does_not_read_does_not_hold_up_the_end() -> None:
    async with running() as subject:
        client = await subject.connect()
        for number in range(3_000):
            client.send("DescribeGroups", 0, number, **DESCRIBE)
        await until(lambda: len(subject.groups.commands) > 0)
        async with asyncio.timeout(WITHIN_S):
            await subject.server.close(within_s=0.05)
        assert subject.metrics.connections == 0


async def test_an_address_that_is_taken_is_an_error() -> None:
    async with running() as subject:
        other = Running(ServerSettings(port=subject.server.port))
        with pytest.raises(OSError, match=r"(?i)address already in use"):
            await other.server.start()


async def test_prometheus_metrics() -> None:
    async with running() as subject:
        registry = CollectorRegistry()
        registry.register(subject.metrics)
        client = await subject.connect()
        client.send("Heartbeat", 3, **HEARTBEAT)
        await client.answer()
        client.writer.write(with_length(b"\x7f\x7f\x00\x00" + bytes(9)))
        assert await client.is_closed()
        await until(lambda: subject.metrics.connections == 0)
        assert registry.get_sample_value("muster_requests_total", {"api": "Heartbeat", "version": "3"}) == 1
        assert registry.get_sample_value("muster_protocol_errors_total", {"fault": "unknown-api"}) == 1
        assert registry.get_sample_value("muster_connections_accepted_total") == 1
        assert registry.get_sample_value("muster_connections") == 0
        assert not [each for metric in registry.collect() for each in metric.samples if "32639" in str(each.labels)]


@pytest.mark.parametrize(
    ("address", "printed"),
    [
        ("10.0.0.7", "/10.0.0.7"),
        ("::1", "/0:0:0:0:0:0:0:1"),
        ("fe80::1%eth0", "/fe80:0:0:0:0:0:0:1%eth0"),
        ("::ffff:10.0.0.7", "/10.0.0.7"),
        ("2001:DB8::A", "/2001:db8:0:0:0:0:0:a"),
    ],
)
def test_addresses_are_printed_as_java_does(address: str, printed: str) -> None:
    assert java_host(address) == printed


async def test_slow_answers_are_sent_before_more_of_them_are_made() -> None:
    """A client that sends many requests and reads nothing uses a limited amount of memory and time."""
    async with running() as subject:
        greedy = await subject.connect()
        for number in range(200):
            greedy.send("DescribeGroups", 5, number, groups=["g"] * 10, include_authorized_operations=False)
        await greedy.writer.drain()
        other = await subject.connect()
        other.send("Heartbeat", 4, 1, **HEARTBEAT)
        assert (await other.answer())[0] == 1
        decided = sum(isinstance(command, DescribeGroup) for command in subject.groups.commands)
        assert decided < 200 * 10, "everything was decided for one who does not read"
        for number in range(200):
            assert (await greedy.answer())[0] == number


async def test_an_idle_client_that_does_not_read_is_cut_off() -> None:
    """Marked at one sweep, it is closed at the next; and counted once."""
    async with running(connections_max_idle_ms=10_000) as subject:
        client = await subject.connect()
        for number in range(100):
            client.send("DescribeGroups", 5, number, groups=["g"] * 10, include_authorized_operations=False)
        await client.writer.drain()
        await until(lambda: bool(subject.groups.commands))
        for _ in range(3):
            subject.now_ms += 10_001
            subject.timers.pass_all()
        await until(lambda: subject.metrics.connections == 0)
        assert subject.metrics.connections_idle_closed == 1
