"""One request in flight: its steps, what its handler waits for, and its cancellation when the client disconnects.

Knows nothing of connections, or of what a request means.
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
"""A response in chunks, starting after the correlation id; or the error that prevents it from being written; or no
response.
"""


class InFlightRequest:
    """One request from frame to response. Calls `answer` at most once."""

    def __init__(self, form: MessageVersion, slices: Slices, answer: Callable[[Answered], None]) -> None:
        self._form = form
        self._slices = slices
        self._answer = answer
        self._cancels: list[Cancel] = []
        self._is_cancelled = False

    def run(self, steps: Steps[R], done: Callable[[R], None]) -> None:
        """Run the steps in slices. Raises ProtocolError; errors in later slices end the request."""
        try:
            self.drops(self._slices.run(steps, done, self.failed))
        except ProtocolError:
            raise
        except Exception as error:
            raise self._failure(error) from error

    def work(self, steps: Steps[Cancel | None]) -> None:
        """`run` for a handler's steps (see `api.Work`): both they and the function that they return are cancelled with
        the request.
        """
        self.run(steps, self.drops)

    async def result(self, steps: Steps[R]) -> R:
        """`run` for a coroutine: return the result, or raise the error."""
        return await self._slices.result(steps)

    def drops(self, cancel: Cancel | None) -> None:
        """Register something else to be cancelled with the request."""
        if cancel is not None:
            self._cancels.append(cancel)

    def write(self, response: Fields) -> None:
        """Write the response with these fields."""
        if self._is_cancelled:
            return
        try:
            self.run(self._form.write_in_steps(response, self._slices.answer_memory), self._answer)
        except ProtocolError as error:
            self._answer(error)

    def superseded(self) -> None:
        """Note that the request is never answered: the same member's next one has taken its place."""
        if not self._is_cancelled:
            self._answer(Superseded())

    def failed(self, error: Exception) -> None:
        """End the request, which cannot be completed."""
        self._answer(error if isinstance(error, ProtocolError) else self._failure(error))

    def _failure(self, error: Exception) -> ProtocolError:
        """Build the error that closes this connection, and no other, after a bug of ours, as in Kafka (G24)."""
        log.error("a request failed", request=self._form.name, exc_info=error)
        return ProtocolError(Fault.FAILED_REQUEST, f"could not handle {self._form.name}: {error!r}")

    def cancel(self) -> None:
        """Cancel the remaining work: the client has disconnected."""
        self._is_cancelled = True
        for cancel in self._cancels:
            cancel()
        self._cancels.clear()
