"""The phases of a takeover, in their order: of each its name, how long it took, and what ended it.

What belongs here: all that a report says of a phase, once. What it must not know: how it is shown.
"""

from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from muster.drills.measuring.takeovers import Takeover


class Phase(msgspec.Struct, frozen=True, kw_only=True):
    """A phase. `ms_of`: how long it took in a takeover; None: there was no such phase. `explained`: for people."""

    name: str
    ms_of: Callable[[Takeover], int | None]
    explained: str


PHASES: Final = (
    Phase(
        name="handing over",
        ms_of=lambda each: each.handing_over_ms,
        explained="the former owner let the partition go in good order, and wrote CoordinatorStopped",
    ),
    Phase(
        name="detection",
        ms_of=lambda each: each.detection_ms,
        explained="until another process was told to own the partition, and began to take it over",
    ),
    Phase(
        name="claim",
        ms_of=lambda each: each.claim_ms,
        explained="until the new owner had claimed the partition, so that nobody else can append to it",
    ),
    Phase(
        name="reading",
        ms_of=lambda each: each.reading_ms,
        explained="until the new owner had read the partition's history, and wrote CoordinatorReady",
    ),
    Phase(
        name="answering",
        ms_of=lambda each: each.answering_ms,
        explained="until a member of the partition was answered for the first time after that",
    ),
)
PHASE_NAMES: Final = tuple(each.name for each in PHASES)


def phases(takeover: Takeover) -> Sequence[tuple[Phase, int]]:
    """The phases that there were, in ms."""
    return [(phase, ms) for phase in PHASES if (ms := phase.ms_of(takeover)) is not None]


def times(takeovers: Sequence[Takeover], phase: Phase) -> list[int]:
    """How long a phase took in those takeovers that had it, in ms."""
    return [ms for each in takeovers if (ms := phase.ms_of(each)) is not None]
