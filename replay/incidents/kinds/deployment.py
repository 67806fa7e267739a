"""Many processes that were replaced, one after another or at once."""

from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Hashable, Iterator, Sequence
from functools import partial
from typing import Final

from muster.events.state import Member
from muster.replay.incidents.episode.acts import CameBack, Departure, protocols_of
from muster.replay.incidents.episode.replacements import Replacement
from muster.replay.incidents.evidence.connection_ends import all_ended
from muster.replay.incidents.evidence.naming import process_name, processes
from muster.replay.incidents.grade import Grade
from muster.replay.incidents.incident import Statement
from muster.replay.incidents.kinds.assignor_change import KIND as ASSIGNORS
from muster.replay.incidents.kinds.kind import EpisodeView, IncidentClaim, Kind
from muster.replay.incidents.kinds.replaced import (
    acts_of,
    advice_on,
    fenced_before,
    grade_of,
    how_it_went,
    members_of,
    would_be_heard,
)
from muster.replay.incidents.runs import runs
from muster.replay.incidents.windows import (
    DEPLOYMENT_NEXT_MS,
    DEPLOYMENT_PROCESSES_MIN,
    DEPLOYMENT_SHARE_MIN,
    SAME_MOMENT_MS,
)
from muster.replay.text.grammar import plural
from muster.replay.text.times import duration, instant

CUT_OR_RESTARTED: Final = "; it is not recorded whether they were restarted, or cut off from the coordinator"

KIND = Kind(
    "deployment",
    "Two or more processes, and a third of the group at least, were replaced one after another or at once.",
    "all processes that were replaced",
)


def deployments(view: EpisodeView) -> Iterator[tuple[list[Replacement], int]]:
    """Yield runs of unclaimed replacements of enough processes, each with the size of the group.

    A deployment replaces processes that were in the group when it began, each once: one that joined later, or is
    replaced again, belongs to the next deployment, if any. A process that was heard from again under its old member id
    had not ended.
    """
    replaced = [
        each
        for each in view.free_replacements()
        if each.former_id not in view.episode.heard_again and not each.on_same_connection
    ]
    enough: list[tuple[list[Replacement], int]] = []
    spare: defaultdict[Hashable, list[Replacement]] = defaultdict(list)
    for gone_together in runs(sorted(replaced, key=_gone_ms), _goes_on):
        for wave in _waves(view, gone_together):
            for run in runs(wave, _goes_on):
                size = max(len(view.episode.members_at(min(each.begin_ms for each in run))), len(run))
                if len(run) >= max(DEPLOYMENT_PROCESSES_MIN, size * DEPLOYMENT_SHARE_MIN):
                    enough.append((run, size))
                else:
                    for each in run:
                        spare[each.process.key].append(each)
    for run, size in enough:
        _take_nearer(view, run, spare)
        yield sorted(run, key=lambda each: each.begin_ms), size


def _take_nearer(view: EpisodeView, run: list[Replacement], spare: dict[Hashable, list[Replacement]]) -> None:
    """If a process was replaced more than once, use the replacement that is nearest in time to those of other
    processes; its other replacements are not part of the deployment.

    `spare`: the replacements that belong to no deployment, by process.
    """
    while len(run) > 1:
        for end in (run[0], run[-1]):
            first, last = (run[1], run[-1]) if end is run[0] else (run[0], run[-2])
            near = [each for each in spare.get(end.process.key, ()) if _was_there(view, each, first.gone_ms)]
            best = min(near, key=partial(_span_ms, first, last), default=end)
            if _span_ms(first, last, best) < run[-1].gone_ms - run[0].gone_ms:
                spare[end.process.key].remove(best)
                spare[end.process.key].append(end)
                run.remove(end)
                insort(run, best, key=_gone_ms)
                break
        else:
            return


def _was_there(view: EpisodeView, each: Replacement, began_ms: int) -> bool:
    """Return whether the old process was in the group when the first of the others was replaced."""
    came_ms = view.episode.came_ms(each.former_id)
    return came_ms is None or came_ms <= began_ms


def _span_ms(first: Replacement, last: Replacement, other: Replacement) -> int:
    """Return the time between the first and the last departure of the three."""
    return max(last.gone_ms, other.gone_ms) - min(first.gone_ms, other.gone_ms)


def _gone_ms(each: Replacement) -> int:
    return each.gone_ms


def _waves(view: EpisodeView, replaced: Sequence[Replacement]) -> list[list[Replacement]]:
    """Return the waves. Replacements are added in the order in which the processes ended, each to the first wave that
    it fits.

    A wave replaces processes that were in the group when it began, each once.
    """
    waves: list[list[Replacement]] = []
    begins_ms: list[int] = []
    wave_after: dict[Hashable, int] = {}
    for each in replaced:
        came_ms = view.episode.came_ms(each.former_id)
        first = 0 if came_ms is None else bisect_left(begins_ms, came_ms)
        place = max(first, wave_after.get(each.process.key, 0))
        if place == len(waves):
            waves.append([])
            begins_ms.append(each.gone_ms)
        waves[place].append(each)
        wave_after[each.process.key] = place + 1
    return waves


def find(view: EpisodeView) -> Iterator[IncidentClaim]:
    for run, size in deployments(view):
        named = [each.member for each in run]
        left = sum(each.went is not None and each.went.how is Departure.LEFT for each in run)
        at_once = len(run) > 1 and run[-1].begin_ms - run[0].begin_ms <= max(5_000, run[0].end_ms - run[0].begin_ms)
        # For restarts without a rebalance the earliest known time is when each process was last heard from.
        begin_ms = run[0].begin_ms if any(each.went is not None for each in run) else min(each.gone_ms for each in run)
        is_seen = any(each.went is not None for each in run)  # static restarts show when each joined, not when it left
        order = " at once," if at_once and is_seen else "" if at_once else " one after another,"
        fell_silent = _fell_silent_at_once(view, run)
        how = "stopped and started" if left == len(run) else "disappeared and came back" if is_seen else "were replaced"
        if fell_silent:
            how, order = "fell silent at the same moment, and came back", ""
        changed = _changed_assignors(run)
        yield IncidentClaim(
            kind=ASSIGNORS if changed else KIND,
            acts=acts_of(run),
            culprits=members_of(run),
            grade=Grade.UNKNOWN if fell_silent and not would_be_heard(run) else grade_of(run),
            headline=(
                f"{changed}{plural(len(named), 'process')} of {size} {how}{order} within"
                f" {duration(max(each.end_ms for each in run) - begin_ms)}: {processes(named)}"
                f"{'' if fell_silent else _crashed(run)}{CUT_OR_RESTARTED if fell_silent else ''}"
            ),
            chain=(
                *(
                    Statement(
                        text=f"{process_name(each.member)} {how_it_went(each.went)}",
                        grade=each.process.grade,
                        at=instant(each.begin_ms),
                        seqs=tuple(act.seq for act in each.acts),
                    )
                    for each in run
                ),
                *fenced_before(view.episode, run),
            ),
            advice=advice_on(run),
        )


def _crashed(run: Sequence[Replacement]) -> str:
    """Name the few that fell silent, if most left: they were not stopped like the others."""
    silent = [each.went.member for each in run if each.went is not None and each.went.is_silent]
    left = sum(each.went is not None and each.went.how is Departure.LEFT for each in run)
    return f"; of these {processes(silent)} fell silent without leaving" if 0 < len(silent) < left else ""


def _fell_silent_at_once(view: EpisodeView, run: Sequence[Replacement]) -> bool:
    """Return whether all fell silent at the same time, and were removed before any came back.

    A network cut looks the same unless clients come back with their old member ids, which is kind `network-cut`.
    """
    went = [each.went for each in run if each.went is not None and each.went.how is Departure.EXPIRED]
    if (
        len(went) < len(run)
        or all_ended(view.episode, went)
        or not all(view.episode.silence_of(act).is_known for act in went)
    ):
        return False
    seen = [act.last_seen_ms for act in went]
    are_missed_first = all(each.came.at_ms >= act.at_ms for each, act in zip(run, went, strict=True))
    return are_missed_first and max(seen) - min(seen) <= SAME_MOMENT_MS


def _goes_on(run: Sequence[Replacement], each: Replacement) -> bool:
    """Compare the times when processes ended: a static member is removed only when its session ends."""
    return each.gone_ms - run[-1].gone_ms <= DEPLOYMENT_NEXT_MS


def _changed_assignors(run: Sequence[Replacement]) -> str:
    """Describe the change of assignors, if most came back with another list."""
    pairs = [(before, each.came.member) for each in run if (before := _before(each)) is not None]
    changed = [(before, after) for before, after in pairs if protocols_of(before) != protocols_of(after)]
    if len(changed) * 2 <= len(run):
        return ""
    before, after = changed[-1]
    return f"the assignors changed from {', '.join(protocols_of(before))} to {', '.join(protocols_of(after))} while "


def _before(each: Replacement) -> Member | None:
    if each.went is not None:
        return each.went.member
    return each.came.before if isinstance(each.came, CameBack) else None
