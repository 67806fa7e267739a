"""The verdict on any frame: its connection is answered or closed, nothing is left of it, the process lives."""

import asyncio
import gc
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import structlog

from muster.coordinator.wire.api import Fault
from tests.coordinator.longest_callback import Longest
from tests.frames.generator import Frame

HELD_S_MAX = 0.15
"""The longest callback of the loop, in processor time."""

GONE_WITHIN_S = 30.0


class BadOutcome(AssertionError):
    """A forbidden outcome; the text has the frame."""


class Verdict:
    """`outcomes` counts what became of the frames."""

    def __init__(self) -> None:
        self.outcomes: Counter[str] = Counter()
        self.unhandled: list[str] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: self.unhandled.append(repr(context)))

    def judge(self, frame: Frame, *, answered: bool, fault: Fault | None, closed: bool) -> None:
        """Judge one connection, before the client goes. Raises BadOutcome."""
        outcome = "answered" if answered else (fault.value if fault else "closed" if closed else "nothing")
        self.outcomes[outcome] += 1
        if fault is Fault.FAILED_REQUEST or self.unhandled:
            raise BadOutcome(f"{fault} {self.unhandled}: {frame.told}")
        if outcome == "nothing" and frame.is_whole:
            raise BadOutcome(f"neither answered nor closed: {frame.told}")

    async def nothing_is_left(self, kind: type[Any], left: Callable[[], Mapping[str, int]]) -> None:
        """Check that nothing is left after all connections are closed and all requests to the broker are done. Raises
        BadOutcome.
        """
        deadline = time.monotonic() + GONE_WITHIN_S
        while (alive := _alive(kind)) or any(left().values()):
            if time.monotonic() > deadline:
                raise BadOutcome(f"{alive} {kind.__name__} are kept, and {left()}")
            await asyncio.sleep(0.2)

    def nobody_waited(self, longest: Longest) -> None:
        """Raises BadOutcome."""
        if longest.seconds >= HELD_S_MAX:
            raise BadOutcome(f"a callback held the loop: {longest}")


@contextmanager
def no_errors_told() -> Iterator[None]:
    """Check for errors: a rule that fails is answered, and appears in the log only."""
    reported: list[Any] = []

    def note(_logger: object, method: str, line: Any) -> Any:
        if method in {"error", "exception"}:
            reported.append(line)
        raise structlog.DropEvent

    processors = structlog.get_config()["processors"]
    before = processors.copy()
    processors[:] = [note]
    try:
        yield
    finally:
        processors[:] = before
    assert not reported


def _alive(kind: type[Any]) -> int:
    gc.collect()
    return sum(isinstance(each, kind) for each in gc.get_objects())
