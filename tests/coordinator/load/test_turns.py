"""Turns: however many connections have requests, together they use a slice or two of each loop turn."""

import asyncio
import socket

from muster.coordinator.load.slices import SLICE_S
from muster.coordinator.load.turns import REQUESTS_AT_ONCE, REQUESTS_IN_ROUND, Turns
from tests.coordinator.hostile import exactly
from tests.coordinator.kio_client import frame, with_length
from tests.coordinator.longest_turn import longest_turn
from tests.coordinator.running_server import HEARTBEAT, running
from tests.coordinator.serving import serving
from tests.waiting import until

HELD_S_MAX = 0.15
CONNECTIONS = 200
API_VERSIONS = with_length(b"\x00\x12\x00\x00\x00\x00\x00\x01\xff\xff")


class Clock:
    """Advances only while requests are handled."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


class Busy:
    """A connection with this many requests, each of which takes a fifth of a slice."""

    def __init__(self, name: str, requests: int, turns: Turns, clock: Clock, log: list[str]) -> None:
        self._name = name
        self._requests = requests
        self._turns = turns
        self._clock = clock
        self._log = log

    def come(self) -> None:
        """Data was read."""
        if self._turns.begin(self):
            self.take_turn()

    def take_turn(self) -> None:
        for _ in range(self._turns.share):
            self._log.append(self._name)
            self._clock.now_s += SLICE_S / 5
            self._requests -= 1
            if not self._requests:
                return
            if self._turns.is_over:
                break
        self._turns.wait(self)


class Crowd:
    """Connections that are all ready in one turn of the loop."""

    def __init__(self) -> None:
        self._clock = Clock()
        self.turns = Turns(self._clock)
        self.log: list[str] = []

    def new(self, name: str, requests: int) -> Busy:
        return Busy(name, requests, self.turns, self._clock, self.log)


async def test_all_connections_together_have_one_slice_in_a_turn() -> None:
    subject = Crowd()
    for n in range(100):
        subject.new(f"{n}", 1).come()
    assert len(subject.log) == 5
    for turn in range(2, 21):
        await asyncio.sleep(0)
        assert len(subject.log) == 5 * turn
    assert subject.log == [f"{n}" for n in range(100)]


async def test_remaining_work_waits_behind_newer_arrivals() -> None:
    subject = Crowd()
    for n in range(100):
        subject.new(f"greedy {n}", 64).come()
    subject.new("late", 1).come()
    for _ in range(1_000):
        await asyncio.sleep(0)
    before = subject.log.index("late") - 5  # those of the first, which started while no other waited
    assert before <= REQUESTS_IN_ROUND


async def test_current_waiters_are_served_before_later_arrivals() -> None:
    subject = Crowd()
    for n in range(20):
        subject.new(f"{n}", 1).come()
    subject.turns.after_pending(lambda: subject.log.append("then"))
    subject.new("late", 1).come()
    for _ in range(10):
        await asyncio.sleep(0)
    assert subject.log == [*(f"{n}" for n in range(20)), "then", "late"]
    subject.turns.after_pending(lambda: subject.log.append("at once"))
    assert subject.log[-1] == "at once"


async def test_a_closed_connection_has_no_turn() -> None:
    subject = Crowd()
    subject.new("first", 6).come()
    gone = subject.new("gone", 1)
    gone.come()
    assert subject.turns.is_waiting(gone)
    subject.turns.forget(gone)
    for _ in range(3):
        await asyncio.sleep(0)
    assert subject.log == ["first"] * 6


async def test_a_failing_turn_takes_no_turn_of_others() -> None:
    class Fails:
        def take_turn(self) -> None:
            raise ValueError

    subject, reported = Crowd(), list[object]()
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context["exception"]))
    subject.turns.wait(Fails())
    subject.turns.wait(subject.new("behind", 1))
    for _ in range(3):
        await asyncio.sleep(0)
    assert (subject.log, len(reported)) == (["behind"], 1)


def clients(port: int) -> list[socket.socket]:
    return [socket.create_connection(("127.0.0.1", port), timeout=60) for _ in range(CONNECTIONS)]


async def test_many_connections_with_a_few_small_requests_block_no_others() -> None:
    """Each sends no more than its share, and all of it is read at once."""
    async with serving() as muster:
        sockets = await asyncio.to_thread(clients, muster.server.port)
        with longest_turn() as longest:
            for each in sockets:  # the loop is blocked in between
                each.sendall(API_VERSIONS * REQUESTS_AT_ONCE)
            await asyncio.to_thread(_answered, sockets)
        assert longest.seconds < HELD_S_MAX, longest


async def test_a_waiting_request_is_executed_although_its_client_disconnects() -> None:
    """A member that leaves and closes its connection does not count as lost."""
    async with running() as subject:
        sockets = await asyncio.to_thread(clients, subject.server.port)
        for each in sockets[:-1]:
            each.sendall(API_VERSIONS * REQUESTS_AT_ONCE)
        sockets[-1].sendall(API_VERSIONS * 2 + with_length(frame("Heartbeat", 4, **HEARTBEAT)))
        sockets[-1].close()
        await asyncio.to_thread(_answered, sockets[:-1])
        await until(lambda: subject.metrics.connections == 0)
        assert len(subject.groups.commands) == 1


def _answered(sockets: list[socket.socket]) -> None:
    """Wait for all responses."""
    for each in sockets:
        for _ in range(REQUESTS_AT_ONCE):
            exactly(each, int.from_bytes(exactly(each, 4), "big"))
        each.close()
