"""What the event loop works on at this moment: written down by whoever begins it, read by the thread that watches it.

What belongs here: the note, and what stands in it. What it must not know: who reads it, and what is made of it.

A process has one event loop, so there is one note, `NOW`. To write it is one assignment, words are made of it when
somebody asks. What is too short to hold anybody up writes none: the fast path of heartbeats, bytes that are relayed.
"""

from collections.abc import Callable, Coroutine, Generator
from types import coroutine
from typing import Any, TypeVar

import msgspec

R = TypeVar("R")


class RequestWork(msgspec.Struct, frozen=True, kw_only=True):
    """A client's request. `connection` is the client's address, HOST:PORT; `principal` is "" where it is not known."""

    api: str
    api_version: int
    size_bytes: int
    connection: str
    principal: str


class OtherWork(msgspec.Struct, frozen=True, kw_only=True):
    """What no request has asked for."""

    work: str


class CurrentWork:
    """`note` is None when nobody has written down what is being done."""

    __slots__ = ("note",)

    def __init__(self) -> None:
        self.note: RequestWork | OtherWork | None = None


NOW = CurrentWork()


class noted:  # noqa: N801 -- used like a function, and a class since it costs a third of a generator
    """Note what is being done, from here to the end of the block, which must not await."""

    __slots__ = ("_before", "_note")

    def __init__(self, note: RequestWork | OtherWork) -> None:
        self._note = note
        self._before: RequestWork | OtherWork | None = None

    def __enter__(self) -> None:
        self._before, NOW.note = NOW.note, self._note

    def __exit__(self, *_error: object) -> None:
        NOW.note = self._before


@coroutine
def noted_steps(note: RequestWork | OtherWork, steps: Coroutine[Any, Any, R]) -> Generator[Any, Any, R]:
    """Await `steps`, with each of them noted, from one await to the next, and not what others do in between."""
    resume: Callable[[], Any] = lambda: steps.send(None)  # noqa: E731 -- it changes
    while True:
        with noted(note):
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
