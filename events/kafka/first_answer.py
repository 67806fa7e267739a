"""Hedges requests that any broker can answer: the next broker is asked if one is silent.

It decides the order, the delays and which response is used, for any request.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, Final, Generic, NamedTuple, TypeVar

P = TypeVar("P")
R = TypeVar("R")
E = TypeVar("E", bound=Exception)

HEDGE_DELAY_S: Final = 0.5
"""The delay before the next broker is asked."""


class Round(NamedTuple, Generic[P, R, E]):
    """The result. `answer`: the first response and the broker that sent it, or None if all failed. `silent`: the
    brokers that were asked before that one.
    """

    answer: tuple[P, R] | None
    failed: list[E]
    silent: list[P]

    @property
    def reasons(self) -> str:
        """The texts of the failures, without duplicates."""
        return "; ".join(dict.fromkeys(map(str, self.failed)))

    def all_failed_as(self, failure: type[Exception]) -> bool:
        """Return whether each failure is of this type."""
        return all(isinstance(error, failure) for error in self.failed)


async def first_answer(
    among: Iterable[P], ask: Callable[[P], Coroutine[Any, Any, R]], failures: tuple[type[E], ...]
) -> Round[P, R, E]:
    """Ask one broker after another, the next one if one has failed or is silent. Raises errors other than `failures`.

    A broker that refuses our credentials counts as failed, like one without a response: only its certificate may be
    wrong.
    """
    places = iter(among)
    failed: list[E] = []
    asked: dict[asyncio.Task[R], P] = {}
    try:
        while True:
            place = next(places, None)
            if place is not None:
                asked[asyncio.create_task(ask(place), name=f"ask-{place}")] = place
            elif not asked:
                return Round(None, failed, [])
            within_s = None if place is None else HEDGE_DELAY_S
            done, _ = await asyncio.wait(asked, timeout=within_s, return_when=asyncio.FIRST_COMPLETED)
            ended = [(asked.pop(task), task) for task in done]
            failed += [_failure(task, failures) for _, task in ended if task.exception() is not None]
            for answerer, task in ended:
                if task.exception() is None:
                    return Round((answerer, task.result()), failed, [each for each in asked.values() if each != place])
    finally:
        for task in asked:
            task.cancel()


def _failure(task: asyncio.Task[Any], failures: tuple[type[E], ...]) -> E:
    error = task.exception()
    if not isinstance(error, failures):
        raise error or AssertionError("it has not failed")
    return error
