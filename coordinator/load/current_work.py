"""The current work of the event loop, noted when it begins and read by the watchdog thread.

A process has one event loop, so there is one note, `CURRENT_WORK`. Writing it is one assignment. Work that is too short
to delay other work is not noted: the fast path of heartbeats, relayed bytes.
"""

from collections.abc import Callable, Coroutine, Generator
from types import coroutine
from typing import Any, TypeVar

import msgspec

R = TypeVar("R")


class RequestWork(msgspec.Struct, frozen=True, kw_only=True):
    """A client's request. `connection` is the client's address, HOST:PORT; `principal` is "" if it is unknown."""

    api: str
    api_version: int
    size_bytes: int
    connection: str
    principal: str


class OtherWork(msgspec.Struct, frozen=True, kw_only=True):
    """Work that belongs to no request."""

    work: str


class CurrentWork:
    """`note` is None if the current work is not noted."""

    __slots__ = ("note",)

    def __init__(self) -> None:
        self.note: RequestWork | OtherWork | None = None


CURRENT_WORK = CurrentWork()


class working_on:  # noqa: N801 -- used like a function, and a class since it costs a third of a generator
    """Note the work of a block, which must not await."""

    __slots__ = ("_before", "_note")

    def __init__(self, note: RequestWork | OtherWork) -> None:
        self._note = note
        self._before: RequestWork | OtherWork | None = None

    def __enter__(self) -> None:
        self._before, CURRENT_WORK.note = CURRENT_WORK.note, self._note

    def __exit__(self, *_error: object) -> None:
        CURRENT_WORK.note = self._before


async def steps_working_on(note: RequestWork | OtherWork, steps: Coroutine[Any, Any, R]) -> R:
    """Await `steps`, with its work noted while it runs, but not while it waits."""
    return await _driven(note, steps)  # tasks accept no generators from Python 3.12 on


@coroutine
def _driven(note: RequestWork | OtherWork, steps: Coroutine[Any, Any, R]) -> Generator[Any, Any, R]:
    resume: Callable[[], Any] = lambda: steps.send(None)  # noqa: E731 -- it changes
    while True:
        with working_on(note):
            try:
                awaited = resume()
            except StopIteration as done:
                result: R = done.value
                return result
        try:
            sent = yield awaited
        except BaseException as error:  # noqa: BLE001 -- thrown into the steps, which decide
            resume = _thrown(steps, error)
        else:
            resume = _sent(steps, sent)


def _sent(steps: Coroutine[Any, Any, Any], value: object) -> Callable[[], Any]:
    return lambda: steps.send(value)


def _thrown(steps: Coroutine[Any, Any, Any], error: BaseException) -> Callable[[], Any]:
    return lambda: steps.throw(error)
