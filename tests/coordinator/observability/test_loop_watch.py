"""The watchdog of the event loop: what counts as a stall, /healthz during it, and the log lines."""

import asyncio
import inspect
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.client import HTTPConnection

import pytest
import structlog
from prometheus_client import CollectorRegistry

from muster.coordinator.group.commands import AnyRequest, DescribeGroup
from muster.coordinator.group.outcomes import Outcome
from muster.coordinator.load.current_work import CURRENT_WORK, OtherWork, steps_working_on, working_on
from muster.coordinator.observability import loop_watch
from muster.coordinator.observability.loop_watch import LOOK_S, TICK_S, Instant, LoopTicks, LoopWatch
from muster.coordinator.observability.metrics import REGISTRY
from muster.coordinator.observability.metrics_endpoint import MetricsEndpoint
from tests.coordinator.kio_client import frame
from tests.coordinator.running_server import DESCRIBE, outcome, running
from tests.waiting import until

WITHIN_S = 60


# ---- detection -----------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def _nothing_is_noted() -> None:
    """Earlier tests may have had two loops at once, which a process never has."""
    CURRENT_WORK.note = None


class SimulatedProcess:
    """A process on a simulated clock that works, waits, or is stopped. The watchdog thread checks in between."""

    def __init__(self) -> None:
        self.now_s = self.used_s = 0.0
        self.turns = LoopTicks(Instant(0.0, 0.0))
        self.gone_s: list[float] = []

    def instant(self) -> Instant:
        return Instant(self.now_s, self.used_s)

    def passes(self, seconds: float, *, used: float = 0.0) -> None:
        """Time passes without a check."""
        self.now_s += seconds
        self.used_s += used

    def looks(self, seconds: float, *, used: float = 0.0) -> None:
        """Time passes, with the thread's regular checks."""
        rounds = round(seconds / LOOK_S)
        for _ in range(rounds):
            self.passes(LOOK_S, used=used / rounds)
            self.look()

    def look(self) -> None:
        self.gone_s.append(self.turns.check(self.instant()))

    def tick(self) -> float:
        return self.turns.tick(self.instant())

    def lives(self, seconds: float) -> list[float]:
        """The loop runs normally. Returns how late each tick was."""
        late = []
        for _ in range(round(seconds / TICK_S)):
            self.passes(TICK_S, used=TICK_S / 10)
            late.append(self.tick())
            self.look()
        return late


def test_a_loop_that_turns_is_not_late() -> None:
    life = SimulatedProcess()
    assert life.lives(10) == pytest.approx([0.0] * 100)
    assert life.turns.held_s == pytest.approx(0.0)


@pytest.mark.parametrize("used", [0.0, 7.0], ids=["waits", "works"])
def test_a_held_loop_counts_from_its_last_turn(used: float) -> None:
    """The callback may use the processor or wait for a disk."""
    life = SimulatedProcess()
    life.lives(1)
    life.looks(7, used=used)
    assert life.turns.held_s == pytest.approx(7)
    assert life.tick() == pytest.approx(7 - TICK_S)
    life.look()
    assert life.turns.held_s == pytest.approx(0.0)
    assert max(life.gone_s) == pytest.approx(0.0)


def test_a_stopped_process_is_not_a_held_loop() -> None:
    """SIGSTOP or a suspended machine: neither the loop nor the thread ran, and no processor time was used."""
    life = SimulatedProcess()
    life.lives(1)
    life.passes(60)
    life.look()  # the thread runs first
    assert life.turns.held_s <= 2 * LOOK_S + TICK_S
    assert life.gone_s[-1] == pytest.approx(60 - 2 * LOOK_S)
    assert life.tick() <= 4 * LOOK_S


def test_no_stall_is_reported_if_the_loop_ticks_first() -> None:
    life = SimulatedProcess()
    life.lives(1)
    life.passes(60)
    assert life.tick() <= 2 * LOOK_S
    life.look()
    assert life.turns.held_s == pytest.approx(0.0)


def test_a_call_that_lets_no_thread_run_holds_the_loop() -> None:
    """The thread could not check either, but processor time was used."""
    life = SimulatedProcess()
    life.lives(1)
    life.passes(8, used=7.9)
    life.look()
    assert life.turns.held_s == pytest.approx(7.9)
    assert life.gone_s[-1] == pytest.approx(0.1)
    assert life.tick() == pytest.approx(8 - TICK_S)


def test_a_held_loop_of_a_process_that_is_stopped_meanwhile_counts_without_that() -> None:
    life = SimulatedProcess()
    life.looks(2)
    life.passes(600)
    life.look()
    life.looks(2)
    assert 4 <= life.turns.held_s <= 4 + 2 * LOOK_S


# ---- the noted work ------------------------------------------------------------------------------


async def test_steps_are_noted_while_they_run_and_not_while_they_wait() -> None:
    note = OtherWork(work="steps")
    turn = asyncio.Event()
    seen: list[object] = []

    async def steps() -> str:
        seen.append(CURRENT_WORK.note)
        await turn.wait()
        seen.append(CURRENT_WORK.note)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await asyncio.Event().wait()
        seen.append(CURRENT_WORK.note)
        with working_on(OtherWork(work="inner")):
            seen.append(CURRENT_WORK.note)
        return "done"

    noted = steps_working_on(note, steps())
    assert inspect.iscoroutine(noted)  # or Python 3.12 makes no task of it
    task = asyncio.create_task(noted)
    await asyncio.sleep(0)
    assert CURRENT_WORK.note is None
    turn.set()
    assert await task == "done"
    assert seen == [note, note, note, OtherWork(work="inner")]
    assert CURRENT_WORK.note is None


async def test_steps_that_are_cancelled_or_fail_leave_no_note() -> None:
    ended: list[str] = []

    async def steps() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            ended.append("cancelled")
            raise

    task = asyncio.create_task(steps_working_on(OtherWork(work="steps"), steps()))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    assert (task.cancelled(), ended, CURRENT_WORK.note) == (True, ["cancelled"], None)

    async def fails() -> None:
        raise ValueError("no good")

    with pytest.raises(ValueError, match="no good"):
        await steps_working_on(OtherWork(work="fails"), fails())
    assert CURRENT_WORK.note is None


# ---- a loop that is really blocked ---------------------------------------------------------------


class Prober:
    """Probes the metrics port as an orchestrator would, from outside the loop."""

    def __init__(self, port: int) -> None:
        self._port = port

    def get(self, path: str) -> tuple[int, str]:
        connection = HTTPConnection("127.0.0.1", self._port, timeout=WITHIN_S)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        finally:
            connection.close()

    def until(self, path: str, status: int) -> str:
        """Probe until the response has this status; return its text."""
        given_up_s = time.monotonic() + WITHIN_S
        while (answer := self.get(path))[0] != status:
            assert time.monotonic() < given_up_s, f"{path} did not become {status}: {answer}"
            time.sleep(0.02)
        return answer[1]


@contextmanager
def watched(registry: CollectorRegistry) -> Iterator[Prober]:
    """The running loop is watched, with limits that suit a test."""
    watch = LoopWatch(logged_after_s=0.5, unwell_after_s=1.0)
    registry.register(watch)
    watch.start()
    endpoint = MetricsEndpoint("127.0.0.1", 0, registry, not_ready=lambda: None, not_well=lambda: watch.not_well)
    try:
        yield Prober(endpoint.port)
    finally:
        endpoint.close()
        watch.close()


def spins(released: threading.Event) -> Callable[[AnyRequest], Outcome | None]:
    """A DescribeGroups blocks the loop until it is released."""

    def outcome_of(command: AnyRequest) -> Outcome | None:
        if isinstance(command, DescribeGroup):
            while not released.is_set():
                pass
        return outcome(command)

    return outcome_of


async def test_a_request_that_holds_the_loop_makes_healthz_fail_and_is_named() -> None:
    registry, released = CollectorRegistry(), threading.Event()
    async with running() as subject:
        with watched(registry) as prober, structlog.testing.capture_logs() as reported:
            subject.groups.outcome = spins(released)
            assert await asyncio.to_thread(prober.get, "/healthz") == (200, "ok\n")

            def held() -> tuple[str, tuple[int, str], str]:
                try:
                    return prober.until("/healthz", 503), prober.get("/readyz"), prober.get("/metrics")[1]
                finally:
                    released.set()

            probing = asyncio.create_task(asyncio.to_thread(held))
            client = await subject.connect()
            client.send("DescribeGroups", 5, 1, **DESCRIBE)
            unwell, ready, metrics = await probing
            assert (await client.answer())[0] == 1
            await asyncio.to_thread(prober.until, "/healthz", 200)
            await until(lambda: reported[-1]["event"] == "event loop recovered")
            host, port = client.writer.get_extra_info("sockname")
    assert f"connection {host}:{port}" in unwell
    assert "api DescribeGroups" in unwell
    assert ready == (200, "ready\n")
    assert registry.get_sample_value("muster_loop_held_seconds") is not None
    assert "muster_loop_held_seconds" in metrics
    named = {
        "api": "DescribeGroups",
        "api_version": 5,
        "size_bytes": len(frame("DescribeGroups", 5, **DESCRIBE)),
        "connection": f"{host}:{port}",
        "principal": "User:ANONYMOUS",
    }
    assert [line["event"] for line in reported if "event loop" in line["event"]] == [
        "event loop stalled",
        "event loop blocked beyond the limit",
        "event loop recovered",
    ]
    for line in reported[:2]:
        assert named.items() <= line.items()
        assert any("outcome_of" in call for call in line["at"])


async def test_an_unrecorded_cause_is_not_guessed() -> None:
    """The running task is named, with its position in the code."""
    released = threading.Event()
    with watched(CollectorRegistry()) as prober, structlog.testing.capture_logs() as reported:

        def held() -> str:
            try:
                return prober.until("/healthz", 503)
            finally:
                released.set()

        async def sweeping() -> None:
            while not released.is_set():
                pass

        probing = asyncio.create_task(asyncio.to_thread(held))
        await asyncio.sleep(0)
        await asyncio.create_task(sweeping(), name="a sweep")
        assert "work not noted, task a sweep" in await probing
    assert (reported[0]["event"], reported[0]["work"], reported[0]["task"]) == (
        "event loop stalled",
        "not noted",
        "a sweep",
    )


async def test_an_idle_loop_without_cpu_time_is_not_reported_as_stalled(monkeypatch: pytest.MonkeyPatch) -> None:
    """It does not tick, and no callback runs."""
    monkeypatch.setattr(loop_watch, "TICK_S", WITHIN_S)
    holds = REGISTRY.get_sample_value("muster_loop_holds_total")
    registry = CollectorRegistry()
    with watched(registry) as prober, structlog.testing.capture_logs() as reported:

        def held() -> tuple[int, str]:
            while (registry.get_sample_value("muster_loop_held_seconds") or 0.0) < 1.5:
                time.sleep(0.02)
            return prober.get("/healthz")

        assert await asyncio.to_thread(held) == (200, "ok\n")
    assert [line["event"] for line in reported] == [
        "the process did not run: it or its machine was suspended, or got no CPU time"
    ]
    assert REGISTRY.get_sample_value("muster_loop_holds_total") == holds


async def test_how_late_the_loop_was_is_a_metric() -> None:
    before = REGISTRY.get_sample_value("muster_loop_late_seconds_count") or 0.0
    with watched(CollectorRegistry()):
        await until(lambda: (REGISTRY.get_sample_value("muster_loop_late_seconds_count") or 0.0) > before + 3)
