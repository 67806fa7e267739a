"""The rule by which a case is left out: the machine or a client did something that the generator did not intend.

    a process stalled     a client's process was not scheduled for longer than `STOOD_STILL_MS`, as its own diary
                              says, when it had not been stopped on purpose. The span of what was done may then be off
                              by more than the judge allows (1 s), and a few such make a session expire
    no answer                 for longer than that nobody answered the onlooker, or it was itself not scheduled, when
                              Muster was not away on purpose
    a client gave up          a process ended by itself, or wrote down that it could not go on
    no rest                   the group did not come to rest within two minutes

Each of them is counted, and listed with its reason; none counts as right or wrong.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from tests.judge.real.diary import What
from tests.judge.real.process import RealProcess
from tests.judge.real.stage import RealStage

STOOD_STILL_MS: Final = 1_000


class Spoiled(Exception):
    """The case is left out; the message says why."""


def why_spoiled(stage: RealStage) -> str | None:
    """Return the reason for leaving the case out, or None."""
    return next(_reasons(stage), None)


def _reasons(stage: RealStage) -> Iterator[str]:
    for process in stage.all:
        yield from _gave_up(process)
        for entry in process.noted(What.LATE):
            late_ms = _outside(entry.from_ms, entry.at_ms, process.stops)
            if late_ms > STOOD_STILL_MS:
                yield f"a process stalled: {process.name} for {late_ms} ms"
    for from_ms, until_ms in stage.onlooker.gaps:
        silent_ms = _outside(from_ms, until_ms, stage.absences)
        if silent_ms > STOOD_STILL_MS:
            yield f"no answer: the onlooker had none for {silent_ms} ms"


def _gave_up(process: RealProcess) -> Iterator[str]:
    for entry in process.noted(What.FAILED):
        yield f"a client gave up: {process.name}: {entry.said}"
    if not process.runs and not process.was_ended:
        yield f"a client gave up: {process.name} ended by itself"


def _outside(from_ms: int, until_ms: int, spans: Iterable[tuple[int, int]]) -> int:
    """How much of it is in none of the spans; what follows one is its aftermath up to half a second."""
    covered = (max(0, min(until_ms, end_ms + 500) - max(from_ms, begin_ms)) for begin_ms, end_ms in spans)
    return until_ms - from_ms - sum(covered)
