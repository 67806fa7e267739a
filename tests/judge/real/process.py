"""A process of a real client, to be started, stopped and killed."""

import os
import signal
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Final

import msgspec

from tests.brokers.child import Leash, signal_group
from tests.forked import CLIENT, started
from tests.judge.real.diary import Entry, What, read_diary, wall_ms
from tests.judge.real.given import Given, Order
from tests.waiting import until_so

ENDS_WITHIN_S: Final = 60


class RealProcess:
    """It runs on a leash in a separate process group, with all processes that it starts."""

    def __init__(self, given: Given, stack: ExitStack) -> None:
        Path(given.folder).mkdir()
        self.given = given
        self.stops: list[tuple[int, int]] = []
        """From when to when it was stopped on purpose, wall clock ms."""
        self.was_ended = False
        """True if it was meant to end: killed, or ordered to close."""
        self._stopped_ms: int | None = None
        command = [*CLIENT, msgspec.json.encode(given).decode()]
        with given.output.open("wb") as output:
            self._leash: Leash = stack.enter_context(started(command, stdout=output))
        stack.callback(self.kill)

    @property
    def name(self) -> str:
        return self.given.name

    @property
    def is_static(self) -> bool:
        return self.given.instance is not None

    @property
    def runs(self) -> bool:
        return self._leash.poll() is None

    @property
    def diary(self) -> list[Entry]:
        return read_diary(self.given.diary)

    def noted(self, what: What) -> list[Entry]:
        return [each for each in self.diary if each.what is what]

    @property
    def member_id(self) -> str:
        """The member id with which it last got partitions; empty before."""
        assigned = self.noted(What.ASSIGNED)
        return assigned[-1].member_id if assigned else ""

    def told(self, order: Order) -> None:
        """Have it do something between two polls."""
        with self.given.orders.open("ab") as file:
            file.write(msgspec.json.encode(order) + b"\n")

    def freeze(self) -> None:
        """SIGSTOP."""
        self._stopped_ms = wall_ms()
        signal_group(self._leash, signal.SIGSTOP)

    def thaw(self) -> None:
        """SIGCONT."""
        assert self._stopped_ms is not None
        signal_group(self._leash, signal.SIGCONT)
        self.stops.append((self._stopped_ms, wall_ms()))
        self._stopped_ms = None

    def kill(self) -> None:
        """Like kill -9 of its whole process group; waits until it is gone."""
        self.was_ended = True
        with suppress(ProcessLookupError):
            os.killpg(self._leash.pid, signal.SIGKILL)
        self._leash.wait(ENDS_WITHIN_S)

    def close(self) -> None:
        """Have it close its consumer and end, and wait for that."""
        self.was_ended = True
        self.told(Order(close=True))
        until_so(lambda: not self.runs, lambda: f"{self.name} does not close", within_s=ENDS_WITHIN_S)
