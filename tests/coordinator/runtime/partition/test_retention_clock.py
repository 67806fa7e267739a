"""The retention clock when the machine's clock is set ahead or back, and its effect on sweeps and trimming."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from structlog.testing import capture_logs

from muster.coordinator import assembly
from muster.coordinator.group.commands import AnyRequest, JoinGroup
from muster.coordinator.group.settings import GroupSettings
from muster.coordinator.runtime.partition.owner import Owner
from muster.coordinator.runtime.partition.retention_clock import BELIEVED_AFTER_MS, JUMP_MS, RetentionClock
from muster.events.log.memory import MemoryStorage
from muster.events.log.sqlite.log import SqliteEventLog
from muster.events.state import GroupState
from tests.events.log.transitions import read_all, record
from tests.simulation.process import SimulatedProcess
from tests.simulation.virtual_time import VirtualClock, simulate
from tests.waiting import until

DAY_MS = 24 * 3_600_000
WINDOW_MS = DAY_MS // 2


class Clocks:
    """Both clocks, moved by the test."""

    def __init__(self) -> None:
        self.now_ms, self.lead_ms = 5_000, 1_700_000_000_000

    def monotonic_ms(self) -> int:
        return self.now_ms

    def wall_ms(self) -> int:
        return self.now_ms + self.lead_ms


class JumpingClock(VirtualClock):
    """The clocks of a simulated process, whose wall clock can be set ahead."""

    ahead_ms = 0

    def wall_ms(self) -> int:
        return super().wall_ms() + self.ahead_ms


def test_a_clock_that_runs_as_usual_is_followed() -> None:
    """Including repeated small corrections, without a log line."""
    clocks = Clocks()
    subject = RetentionClock(clocks, kept_ms=0)
    with capture_logs() as lines:
        for step_ms in (0, JUMP_MS, JUMP_MS, -3 * JUMP_MS, -DAY_MS):
            clocks.now_ms += 600_000
            clocks.lead_ms += step_ms
            assert subject.observe() == clocks.wall_ms()
    assert not lines


def test_a_clock_that_jumps_ahead_and_back_is_never_believed() -> None:
    """It continues by the monotonic clock, and logs a line at each jump."""
    clocks = Clocks()
    subject = RetentionClock(clocks, kept_ms=0)
    former_ms = clocks.lead_ms
    with capture_logs() as lines:
        clocks.lead_ms += 8 * DAY_MS
        for _ in range(3):
            clocks.now_ms += 600_000
            assert subject.observe() == clocks.now_ms + former_ms
        clocks.lead_ms = former_ms
        assert subject.observe() == clocks.wall_ms()
    assert [line["log_level"] for line in lines] == ["warning", "info"]


@pytest.mark.parametrize(("kept_ms", "for_s"), [(0, 86_400), (2 * DAY_MS + 500, 2 * 86_400)])
def test_the_time_until_a_clock_jump_is_believed_is_logged(kept_ms: int, for_s: int) -> None:
    """A day, or the retention of offsets if longer; in whole seconds."""
    clocks = Clocks()
    subject = RetentionClock(clocks, kept_ms=kept_ms)
    clocks.lead_ms += 8 * DAY_MS + 999
    with capture_logs() as lines:
        subject.observe()
    (line,) = lines
    assert (line["ahead_s"], line["for_s"]) == (8 * 86_400, for_s)
    assert lines[0]["ahead_s"] == 8 * DAY_MS // 1000


def test_a_clock_that_stays_ahead_is_believed_after_a_day() -> None:
    """Something expires again then; the next jump is measured from there."""
    clocks = Clocks()
    subject = RetentionClock(clocks, kept_ms=0)
    clocks.lead_ms += 8 * DAY_MS
    subject.observe()
    clocks.now_ms += BELIEVED_AFTER_MS - 1
    assert subject.observe() < clocks.wall_ms()
    clocks.now_ms += 1
    with capture_logs() as lines:
        assert subject.observe() == clocks.wall_ms()
    assert [line["ahead_s"] for line in lines] == [8 * DAY_MS // 1000]
    clocks.lead_ms += DAY_MS
    assert subject.observe() == clocks.wall_ms() - DAY_MS


def test_of_two_jumps_the_second_waits_for_a_time_of_its_own() -> None:
    """The wait for the first, small jump does not count for it; a lead that lasted the whole time is believed."""
    clocks = Clocks()
    subject = RetentionClock(clocks, kept_ms=0)
    former_ms = clocks.lead_ms
    clocks.lead_ms += 2 * JUMP_MS
    subject.observe()
    clocks.now_ms += BELIEVED_AFTER_MS - 1
    clocks.lead_ms += 30 * DAY_MS
    assert subject.observe() == clocks.now_ms + former_ms
    clocks.now_ms += 1
    assert subject.observe() == clocks.now_ms + former_ms + 2 * JUMP_MS
    clocks.now_ms += BELIEVED_AFTER_MS // 48
    assert subject.observe() == clocks.now_ms + former_ms + 2 * JUMP_MS
    clocks.lead_ms -= 30 * DAY_MS
    assert subject.observe() == clocks.wall_ms()


def test_a_second_jump_that_lasts_is_believed_in_the_end() -> None:
    """On a machine that is suspended repeatedly, offsets still expire in the end."""
    clocks = Clocks()
    subject = RetentionClock(clocks, kept_ms=0)
    for _ in range(2 * BELIEVED_AFTER_MS // 600_000 + 10):
        clocks.now_ms += 600_000
        clocks.lead_ms += 2 * JUMP_MS
        subject.observe()
    assert clocks.wall_ms() - subject.observe() <= 2 * BELIEVED_AFTER_MS // 600_000 * 2 * JUMP_MS


def test_offsets_committed_while_the_clock_was_behind_are_kept_for_their_retention() -> None:
    """Setting the clock right is a jump ahead, which is not believed before these commits have expired."""
    clocks, kept_ms = Clocks(), 7 * DAY_MS
    subject = RetentionClock(clocks, kept_ms=kept_ms)
    clocks.lead_ms -= 10 * DAY_MS
    clocks.now_ms += 600_000
    assert subject.observe() == clocks.wall_ms()
    commit_ms, committed_ms = clocks.wall_ms(), clocks.now_ms
    clocks.lead_ms += 10 * DAY_MS
    while subject.observe() - kept_ms < commit_ms:
        clocks.now_ms += 600_000
    assert kept_ms <= clocks.now_ms - committed_ms <= kept_ms + 600_000


def test_offsets_that_were_committed_while_the_clock_was_behind_do_not_expire_early() -> None:
    async def story() -> None:
        clock = JumpingClock()
        settings = GroupSettings(offsets_retention_minutes=3 * 24 * 60, offsets_retention_check_interval_ms=600_000)
        process = await SimulatedProcess(MemoryStorage(partitions=1), settings=settings, clock=clock).start()
        await asyncio.sleep(3_600)
        clock.ahead_ms = -10 * DAY_MS
        await asyncio.sleep(3_600)
        await process.commit(5)
        clock.ahead_ms = 0
        await asyncio.sleep(3 * 24 * 3_600 - 60)
        assert [stored.offset for stored in process.offsets.committed(process.group_id).values()] == [5]
        await asyncio.sleep(3_600)
        assert (await process.describe()).state is GroupState.DEAD
        await process.runtime.stop()

    simulate(story())


def test_a_question_notes_no_clock() -> None:
    """A read records nothing; a decision reads the clock, and the jump is logged."""

    async def story() -> None:
        clock = JumpingClock()
        process = await SimulatedProcess(MemoryStorage(partitions=1), clock=clock).start()
        joined = await process.stable_group("a")
        requests: list[AnyRequest] = []
        submit = process.runtime.submit
        process.runtime.submit = lambda command, _: requests.append(command)  # type: ignore[method-assign,assignment]
        process.join("b")
        process.runtime.submit = submit  # type: ignore[method-assign]
        assert isinstance(requests[0], JoinGroup)
        clock.ahead_ms = 8 * DAY_MS
        with capture_logs() as lines:
            assert not process.runtime.would_refuse(requests[0])
            assert not lines
            await process.commit(5, joined["a"])
        assert "the clock jumped ahead" in lines[0]["event"]
        await process.runtime.stop()

    simulate(story())


def test_a_clock_that_is_ahead_for_a_sweep_deletes_no_offset() -> None:
    """Acknowledged offsets are still there when the clock is set back, and expire on time."""

    async def story() -> None:
        clock = JumpingClock()
        settings = GroupSettings(offsets_retention_minutes=60, offsets_retention_check_interval_ms=10_000)
        process = await SimulatedProcess(MemoryStorage(partitions=1), settings=settings, clock=clock).start()
        await process.commit(5)
        await asyncio.sleep(1)
        clock.ahead_ms = 8 * DAY_MS
        await asyncio.sleep(30)
        clock.ahead_ms = 0
        assert (await process.describe()).state is GroupState.EMPTY
        assert [stored.offset for stored in process.offsets.committed(process.group_id).values()] == [5]
        await asyncio.sleep(3_600)
        assert (await process.describe()).state is GroupState.DEAD
        await process.runtime.stop()

    simulate(story())


async def test_a_file_is_not_trimmed_by_a_clock_that_has_jumped_ahead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its history stays for the whole audit window, and no longer."""
    monkeypatch.setattr(assembly, "TRIM_INTERVAL_S", 0.001)
    clocks = Clocks()
    event_log = SqliteEventLog(tmp_path / "muster.db", partitions=1, audit_window_ms=WINDOW_MS, wall_ms=clocks.wall_ms)
    await event_log.open()
    await (await event_log.claim(0)).append([(record("a", "1"), record("a", "2"), record("z"))])
    retention_clock, trims = RetentionClock(clocks, kept_ms=0), 0
    trim = event_log.trim

    async def counted(now_ms: int) -> object:
        nonlocal trims
        trimmed = await trim(now_ms)
        trims += 1
        return trimmed

    monkeypatch.setattr(event_log, "trim", counted)
    clocks.lead_ms += 8 * DAY_MS
    async with AsyncExitStack() as stack:
        stack.push_async_callback(event_log.close)
        owner = cast("Owner", SimpleNamespace(event_log=event_log, retention_clock=retention_clock))
        assembly.keep_trimmed(owner, stack, lost=lambda error: None)
        await until(lambda: trims >= 2)
        assert len(await read_all(event_log, 0)) == 3
        clocks.now_ms += WINDOW_MS + 1

        async def is_trimmed() -> bool:
            return [stored.value for stored in await read_all(event_log, 0)] == [b"2", b"value"]

        await until(is_trimmed)


def test_a_clock_jump_is_logged_when_seen_believed_or_undone() -> None:
    """Once each, however often the clocks are compared, with the size of the lead."""
    clocks = Clocks()
    subject = RetentionClock(clocks, kept_ms=0)

    def reported(passed_ms: int, ahead_ms: int = 0) -> list[tuple[str, str, int | None]]:
        clocks.now_ms += passed_ms
        clocks.lead_ms += ahead_ms
        with capture_logs() as lines:
            subject.observe()
            subject.observe()
        return [(line["log_level"], line["event"].partition(":")[0], line.get("ahead_s")) for line in lines]

    jumped = ("warning", "the clock jumped ahead, or the machine was suspended", 2 * DAY_MS // 1000)
    assert reported(1_000, 2 * DAY_MS) == [jumped]
    assert reported(1_000) == []
    assert reported(1_000, -2 * DAY_MS) == [("info", "the clock was set back", None)]
    assert reported(1_000, 2 * DAY_MS) == [jumped]
    assert reported(BELIEVED_AFTER_MS) == [("warning", "the clock stayed ahead", 2 * DAY_MS // 1000)]
    assert reported(1_000) == []
