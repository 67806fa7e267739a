"""One process that went and came back again and again."""

from collections import defaultdict
from collections.abc import Iterator, Sequence

from muster.replay.incidents.episode.replacements import Replacement
from muster.replay.incidents.evidence.naming import process_name
from muster.replay.incidents.kinds.kind import EpisodeView, IncidentClaim, Kind
from muster.replay.incidents.kinds.replaced import acts_of, grade_of, members_of
from muster.replay.incidents.runs import runs
from muster.replay.incidents.windows import (
    CRASH_LOOP_NEXT_MS,
    CRASH_LOOP_TIMES_MIN,
)
from muster.replay.times import duration

KIND = Kind(
    "crash-loop",
    "One process went and came back three times or more, never more than ten minutes apart.",
    "the process",
)


def find(view: EpisodeView) -> Iterator[IncidentClaim]:
    by_process: defaultdict[tuple[str, ...], list[Replacement]] = defaultdict(list)
    for each in view.free_replacements():
        by_process[each.process.key].append(each)
    for times in by_process.values():
        for run in runs(times, _goes_on):
            if len(run) < CRASH_LOOP_TIMES_MIN:
                continue
            span_ms = run[-1].end_ms - run[0].begin_ms
            yield IncidentClaim(
                kind=KIND,
                acts=acts_of(run),
                culprits=members_of(run),
                grade=grade_of(run),
                headline=(f"{process_name(run[0].member)} {_what(run)} {len(run)} times within {duration(span_ms)}"),
                advice=("look at why this process ends, in its own log",),
            )


def _what(run: Sequence[Replacement]) -> str:
    """Word what it did; a static one may not have been missed."""
    return "came back" if all(each.went is None for each in run) else "went and came back"


def _goes_on(run: Sequence[Replacement], each: Replacement) -> bool:
    return min(each.begin_ms - run[-1].end_ms, each.begin_ms - run[-1].begin_ms) <= CRASH_LOOP_NEXT_MS
