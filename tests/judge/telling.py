"""The form in which the judge reads what a program reports about a history, whichever program it is.

A teller gets the history and the wall clock at which it ends (which a log does not show), and returns incidents. It
sees nothing else of the case.
"""

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Final, Literal

import msgspec

from muster.replay.fleet.simulation.world.truth import RebalanceId
from tests.replay.whole import History

Grade = Literal["recorded", "inferred", "unknown"]
UNKNOWN: Final = "unknown"


class Telling(msgspec.Struct, frozen=True, kw_only=True):
    """One reported incident. `span` in wall clock ms; its end is None if it is not known.

    `culprits`: member ids (any that the process had), or instance ids; if another client was the cause, those of the
    affected members. `rebalances`: by incarnation and the generation to which each led. `parent`: the `key` of another
    one.
    """

    key: str
    kind: str
    culprits: tuple[str, ...] = ()
    span: tuple[int, int | None]
    rebalances: frozenset[RebalanceId] = frozenset()
    parent: str | None = None
    grade: Grade = "recorded"

    @property
    def abstains(self) -> bool:
        """True if it reports the cause as unknown, which asserts nothing."""
        return UNKNOWN in {self.kind, self.grade}


Teller = Callable[[History, int], Sequence[Telling]]


def teller_named(name: str) -> Teller:
    """The function `package.module:function`."""
    module, _, function = name.partition(":")
    found: Teller = getattr(import_module(module), function)
    return found
