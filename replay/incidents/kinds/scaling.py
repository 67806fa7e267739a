"""Shared by the kinds about a group's size."""

from collections.abc import Iterator, Sequence
from typing import TypeVar

from muster.replay.incidents.episode.acts import Came, Went
from muster.replay.incidents.runs import runs
from muster.replay.incidents.windows import SCALING_NEXT_MS
from muster.replay.text.times import duration

T = TypeVar("T", Came, Went)


def changes_of_size(acts: Sequence[T]) -> Iterator[list[T]]:
    """Yield runs of processes that joined, or left, soon after one another."""
    return runs(acts, lambda run, act: act.at_ms - run[-1].at_ms <= SCALING_NEXT_MS)


def span_text(run: Sequence[Came] | Sequence[Went]) -> str:
    span_ms = run[-1].at_ms - run[0].at_ms
    return f" within {duration(span_ms)}" if len(run) > 1 else ""
