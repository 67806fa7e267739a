"""Waiting for a log that is away, as its owner waits for it: said once when it is away, and once when it is back.

What belongs here: when a log counts as away, and the two lines. Only who goes on with what happens waits: whoever wants
an answer about what was is told that there is none.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Final, TypeVar

from muster.events.log.base import LogUnavailable

T = TypeVar("T")

LOOK_AGAIN_AFTER_S: Final = 0.2
"""The interval at which a log that is followed is looked at."""

SILENT_FOR_S: Final = 5.0
"""The time after which a log that is followed, and does not answer, is told of."""


class LogWait:
    """The waiting for one log, which `name` names for people; `say` is told when it is away, and when it is back."""

    def __init__(self, name: str, say: Callable[[str], None]) -> None:
        self._name = name
        self._say = say
        self._is_told = False
        self.told: list[str] = []
        """The lines about what cannot be read."""

    def tell(self, lines: Iterable[str]) -> None:
        """Say what cannot be read, each line once."""
        for line in lines:
            if line not in self.told:
                self._say(line)
                self.told.append(line)

    async def answer(self, ask: Callable[[], Awaitable[T]], *, unless: type[LogUnavailable] | tuple[()] = ()) -> T:
        """Return what the log answers, as soon as it does. Raises its other errors, and those that are `unless`."""
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
        """Say so once."""
        if not self._is_told:
            self._say(f"{reason}; waiting for it")
        self._is_told = True
