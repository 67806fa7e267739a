"""Schedules a broker's answers to one client that take time: long rewrites in slices, delayed answers by a timer.

What belongs here: slices, and a timer. What it must not know: sockets, and what is in an answer (answers.py).
"""

import asyncio
from collections.abc import Callable

from muster.coordinator.load.slices import Slices
from muster.coordinator.service import Cancel
from muster.coordinator.sidecar.relay.answers import Answers
from muster.coordinator.wire.api import ProtocolError


class AnswerScheduler:
    """`went_on` is called after a step, `rewritten` after a long rewrite, `failed` with a bad answer or our bug."""

    def __init__(
        self,
        answers: Answers,
        slices: Slices,
        *,
        delay_ms: int,
        went_on: Callable[[], None],
        rewritten: Callable[[], None],
        failed: Callable[[Exception], None],
    ) -> None:
        self._answers = answers
        self._slices = slices
        self._delay_s = delay_ms / 1000
        self._went_on = went_on
        self._rewritten = rewritten
        self._failed = failed
        self._delay: asyncio.TimerHandle | None = None
        self._cancel_rewriting: Cancel | None = None

    def go_on(self, step: Callable[[], None]) -> None:
        """Run a step; continue a rewrite in slices, and set the timer for a delayed answer."""
        try:
            step()
            steps = self._answers.take_rewriting()
            if steps is not None:
                self._cancel_rewriting = self._slices.later(steps, lambda _: self._rewritten(), self._failed)
        except ProtocolError as error:
            self._failed(error)
            return
        if self._answers.is_delaying and self._delay is None:
            self._delay = asyncio.get_running_loop().call_later(self._delay_s, self._let_go)
        self._went_on()

    def _let_go(self) -> None:
        self._delay = None
        self.go_on(self._answers.let_go)

    def stop(self) -> None:
        """Cancel what is scheduled."""
        if self._delay is not None:
            self._delay.cancel()
        if self._cancel_rewriting is not None:
            self._cancel_rewriting()
            self._cancel_rewriting = None
