"""One request on its way: its steps, what its handler waits for, and what becomes of it when the client goes away.

What belongs here: the life of a request between its bytes and those of its answer. What it must not know: connections,
and what a request means.
"""

from collections.abc import Callable
from typing import TypeVar

import structlog

from muster.coordinator.group.outcomes import Superseded
from muster.coordinator.load.slices import Slices
from muster.coordinator.service import Cancel
from muster.coordinator.wire.api import Fault, Fields, ProtocolError
from muster.coordinator.wire.messages import MessageVersion
from muster.events.steps import Steps

log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)

R = TypeVar("R")

Answered = list[bytes] | ProtocolError | Superseded
"""An answer from behind the correlation id on, in chunks; or the error why it cannot be written; or there is none."""


class InFlightRequest:
    """One request from frame to response. Calls `answer` once at most."""

    def __init__(self, form: MessageVersion, slices: Slices, answer: Callable[[Answered], None]) -> None:
        self._form = form
        self._slices = slices
        self._answer = answer
        self._cancels: list[Cancel] = []
        self._is_cancelled = False

    def run(self, steps: Steps[R], done: Callable[[R], None]) -> None:
        """Have the steps done in slices. Raises ProtocolError; what comes of them later ends the request."""
        try:
            self.drops(self._slices.run(steps, done, self.failed))
        except ProtocolError:
            raise
        except Exception as error:
            raise self._failure(error) from error

    def work(self, steps: Steps[Cancel | None]) -> None:
        """`run` for a handler's steps (see `api.Work`): what they return is dropped with the request, as they are."""
        self.run(steps, self.drops)

    async def result(self, steps: Steps[R]) -> R:
        """`run` for a coroutine, which gets the result, or what was raised."""
        return await self._slices.result(steps)

    def drops(self, cancel: Cancel | None) -> None:
        """Note what else is to be cancelled with the request."""
        if cancel is not None:
            self._cancels.append(cancel)

    def write(self, response: Fields) -> None:
        """The fields of the response."""
        if self._is_cancelled:
            return
        try:
            self.run(self._form.write_in_steps(response, self._slices.answer_memory), self._answer)
        except ProtocolError as error:
            self._answer(error)

    def superseded(self) -> None:
        """The request is never answered: the same member's next one has taken its place."""
        if not self._is_cancelled:
            self._answer(Superseded())

    def failed(self, error: Exception) -> None:
        """The request cannot be worked on to its end."""
        self._answer(error if isinstance(error, ProtocolError) else self._failure(error))

    def _failure(self, error: Exception) -> ProtocolError:
        """Make the error that closes this connection, and no other, after a bug of ours, as in Kafka (G24)."""
        log.error("a request failed", request=self._form.name, exc_info=error)
        return ProtocolError(Fault.FAILED_REQUEST, f"{self._form.name} could not be worked on: {error!r}")

    def cancel(self) -> None:
        """The client is gone: what is left to be done is not done."""
        self._is_cancelled = True
        for cancel in self._cancels:
            cancel()
        self._cancels.clear()
