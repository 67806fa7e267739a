"""Builds of Muster with one safeguard taken out: the simulation has to notice each of them, or it proves nothing.

What belongs here: the taking out. What it must not know: how it is noticed.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

import msgspec

from muster.coordinator.runtime.partition.answer_lease import AnswerLease
from muster.coordinator.runtime.partition.outbox import Outbox, WriteUnit
from tests.simulation.log_broker import LogBroker


@contextmanager
def without_lease() -> Iterator[None]:
    """An owner answers from memory until it appends."""
    with patch.object(AnswerLease, "covers", new=True), patch.object(AnswerLease, "half_is_over", new=False):
        yield


@contextmanager
def without_fence() -> Iterator[None]:
    """The log takes what a deposed owner appends."""
    with patch.object(LogBroker, "fences", new=False):
        yield


@contextmanager
def without_waiting_for_durability() -> Iterator[None]:
    """Replies leave as soon as their events are handed to the log."""
    submit = Outbox.submit

    def hand_over(self: Outbox, unit: WriteUnit) -> None:
        submit(self, msgspec.structs.replace(unit, settled=lambda _: None))
        self._loop.call_soon(unit.settled, None)

    with patch.object(Outbox, "submit", hand_over):
        yield
