"""While the event log stalls, waiting requests take a limited amount of memory, also those of disconnected clients."""

import asyncio
from functools import partial

from kio.schema.errors import ErrorCode
from structlog.testing import capture_logs

from muster.coordinator.runtime.partition.waiting import COMMAND_BYTES, ENTRY_BYTES, RequestBacklog
from muster.events.ids import GroupId
from muster.events.log.memory import MemoryStorage
from muster.events.state import GroupState
from tests.conformance.wire import Pending
from tests.coordinator.serving import join_body, serving
from tests.simulation.process import SimulatedProcess
from tests.simulation.virtual_time import simulate
from tests.waiting import until

JOIN_BYTES = COMMAND_BYTES + ENTRY_BYTES
REFUSING = "refusing requests with a retriable error: those that wait for the event log exceed half of "


def test_requests_waiting_for_the_log_are_limited_for_all_groups_together() -> None:
    """Excess requests have to be retried; a heartbeat of a group that waits for nothing is answered as always."""

    async def story() -> None:
        backlog = RequestBacklog(10 * JOIN_BYTES)
        process = await SimulatedProcess(MemoryStorage(partitions=2), backlog=backlog).start()
        joined = (await process.stable_group("a"))["a"]
        released = process.log.hold_acknowledgements()
        waiting = [process.join(str(each), group_id=GroupId(f"other-{each}")) for each in range(10)]
        with capture_logs() as logged:
            refused = [process.join(str(each), group_id=GroupId(f"more-{each}")) for each in range(5)]
            commit = process.commit(3, joined)
            assert [(await each).error for each in refused] == [ErrorCode.coordinator_load_in_progress] * 5
            assert (await commit).error is ErrorCode.coordinator_load_in_progress
        (line,) = logged
        assert line["event"].startswith(REFUSING)
        assert line["limit_bytes"] == 10 * JOIN_BYTES
        assert (await process.heartbeat(joined)).error is ErrorCode.none
        assert (await process.describe()).state is GroupState.STABLE
        released.set()
        assert {(await each).error for each in waiting} == {ErrorCode.none}
        assert (await process.join("b", group_id=GroupId("later"))).error is ErrorCode.none
        await process.runtime.stop()

    simulate(story())


def test_a_heartbeat_behind_a_full_backlog_is_answered_without_waiting() -> None:
    """The group waits for the log; the sender looks for the coordinator, as after a second without a full backlog."""

    async def story() -> None:
        backlog = RequestBacklog(4 * JOIN_BYTES)
        process = await SimulatedProcess(MemoryStorage(), backlog=backlog).start()
        joined = (await process.stable_group("a"))["a"]
        released = process.log.hold_acknowledgements()
        waiting = [process.join() for _ in range(4)]
        assert (await process.heartbeat(joined)).error is ErrorCode.coordinator_not_available
        assert (await process.sync(joined)).error is ErrorCode.rebalance_in_progress
        released.set()
        await until(lambda: backlog.bytes == 0, "all is stored")
        assert (await process.heartbeat(joined)).error is ErrorCode.rebalance_in_progress
        await process.runtime.stop()
        await asyncio.gather(*waiting)

    simulate(story())


def test_requests_leave_no_trace_in_the_backlog() -> None:
    """Parked, refused and lost requests are included, so that the backlog never fills up without a reason."""

    async def story() -> None:
        backlog = RequestBacklog(100 * JOIN_BYTES)
        process = await SimulatedProcess(MemoryStorage(), backlog=backlog).start()
        joined = (await process.stable_group("a"))["a"]
        parked = process.join("b")
        assert (await process.heartbeat(joined)).error is ErrorCode.rebalance_in_progress
        await process.commit(3, joined)
        assert (await process.join("x", protocol_type="other")).error is ErrorCode.inconsistent_group_protocol
        assert backlog.bytes == 0
        process.log.hold_acknowledgements()
        held = [process.join("c"), process.heartbeat(joined)]
        await asyncio.sleep(3)  # the heartbeat is answered, and still in the queue
        assert backlog.bytes > 0
        await process.runtime.stop()
        await asyncio.gather(parked, *held)
        assert backlog.bytes == 0

    simulate(story())


async def test_clients_that_send_and_disconnect_fill_no_memory_while_the_log_stalls() -> None:
    """Their connections no longer count as memory, but their requests do until they are stored."""
    backlog = RequestBacklog(1_000_000)
    async with serving(backlog=backlog) as muster:
        released = muster.log.hold_acknowledgements()
        large = [{"name": "range", "metadata": bytes(100_000)}]
        for number in range(30):
            client = await muster.connect("flood")
            answer = client.send("JoinGroup", 3, **join_body(protocols=large, group_id=f"made-up-{number}"))
            await until(partial(_is_read, answer, backlog, backlog.bytes), "read")
            client.close()
        assert 1_000_000 <= backlog.bytes < 1_100_000 + JOIN_BYTES
        client = await muster.connect("app")
        assert (await client.ask("JoinGroup", 3, **join_body()))["error_code"] == 14
        released.set()
        await until(lambda: backlog.bytes == 0, "all is stored")
        assert (await client.ask("JoinGroup", 3, **join_body()))["error_code"] == 0


def _is_read(answer: Pending, backlog: RequestBacklog, before: int) -> bool:
    return answer.is_answered or backlog.bytes > before
