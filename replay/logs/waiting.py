"""Waits for a log that is unavailable, as an owner does: reports once that it is unavailable, and once that it is back.

Only commands that follow a log wait. A command that asks about the past fails instead.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Final, TypeVar

from muster.events.log.base import LogUnavailable

T = TypeVar("T")

LOOK_AGAIN_AFTER_S: Final = 0.2
"""The interval at which a followed log is polled."""

SILENT_FOR_S: Final = 5.0
"""The time without a response after which a followed log is reported as unavailable."""


class LogWait:
    """Waits for one log. `name`: its name in messages; `say`: prints a line when it becomes unavailable or is back."""

    def __init__(self, name: str, say: Callable[[str], None]) -> None:
        self._name = name
        self._say = say
        self._is_told = False
        self.told: list[str] = []
        """The lines about unreadable parts."""

    def tell(self, lines: Iterable[str]) -> None:
        """Print the lines about unreadable parts, each only once."""
        for line in lines:
            if line not in self.told:
                self._say(line)
                self.told.append(line)

    async def answer(self, ask: Callable[[], Awaitable[T]], *, unless: type[LogUnavailable] | tuple[()] = ()) -> T:
        """Return the log's response as soon as there is one. Raises its other errors, and those of type `unless`."""
        while True:
            asked = asyncio.ensure_future(ask())
            try:
                if not (await asyncio.wait({asked}, timeout=SILENT_FOR_S))[0]:
                    self.is_away(f"{self._name} has not answered for {SILENT_FOR_S:.0f} s")
                answer = await asked
            except LogUnavailable as error:
                if isinstance(error, unless):
                    raise
                self.is_away(str(error))
                await asyncio.sleep(LOOK_AGAIN_AFTER_S)
                continue
            finally:
                asked.cancel()
            if self._is_told:
                self._say(f"{self._name} answers again")
                self._is_told = False
            return answer

    def is_away(self, reason: str) -> None:
        """Report that the log is unavailable, unless it was reported already."""
        if not self._is_told:
            self._say(f"{reason}; waiting for it")
        self._is_told = True
