"""Shared by the kinds about replaced processes."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import reduce
from typing import Final

from muster.events.ids import MemberId
from muster.events.state import Member
from muster.replay.incidents.episode.acts import AnyAct, CameBack, Departure, Went
from muster.replay.incidents.episode.episode import Episode
from muster.replay.incidents.episode.replacements import Replacement
from muster.replay.incidents.evidence.connection_ends import Ending, ending
from muster.replay.incidents.evidence.former_process import former_statement
from muster.replay.incidents.evidence.standbys import call_for
from muster.replay.incidents.grade import Grade, at_best
from muster.replay.incidents.incident import Statement
from muster.replay.incidents.kinds.kind import EpisodeView
from muster.replay.incidents.runs import runs
from muster.replay.incidents.windows import CRASH_LOOP_NEXT_MS, REPLACED_MS, SAME_MOMENT_MS
from muster.replay.text.times import duration

LOST_AGAIN: Final = "; then it lost its place again, and whether it had ended by then is not known"
IF_NOT_BACK: Final = "if it does not come back: look at its log, at its machine, and at the network to it"
WAITED_FOR: Final = "but then the group waits as long for a process that dies (muster replay whatif shows the cost)"
INSTANCE_IDS: Final = (
    "with a group.instance.id each, and a session timeout above the time of a restart, none would rebalance;"
    f" {WAITED_FOR}"
)
INSTANCE_ID: Final = (
    "with a group.instance.id, and a session timeout above the time of a restart, its restart would cause no rebalance;"
    f" {WAITED_FOR}"
)


def later(each: Replacement) -> str:
    """Return '3.0 s later', or 'later' if it is not known how much later."""
    return "later" if each.gap_ms is None else f"{duration(each.gap_ms)} later"


def after_last_sign(each: Replacement) -> str:
    """Return ' 3.0 s after its last sign of life', or nothing if the time is not known."""
    return "" if each.gap_ms is None else f" {duration(each.gap_ms)} after its last sign of life"


def acts_of(replacements: Sequence[Replacement]) -> tuple[AnyAct, ...]:
    return tuple(sorted((act for each in replacements for act in each.acts), key=lambda act: act.seq))


def members_of(replacements: Sequence[Replacement]) -> tuple[Member, ...]:
    """Return all members of these processes, old and new."""
    members = {act.member.member_id: act.member for each in replacements for act in each.acts}  # type: ignore[union-attr]
    return tuple(members.values())


def grade_of(replacements: Sequence[Replacement]) -> Grade:
    """Return the lowest grade of the processes' identities."""
    return reduce(at_best, (each.process.grade for each in replacements), Grade.RECORDED)


def times_in_a_row(replaced: Iterable[Replacement]) -> Iterator[list[Replacement]]:
    """Yield the runs in which one process left and came back repeatedly; its identity or its connection shows that it
    is the same process.
    """
    by_process: defaultdict[tuple[str, ...], list[Replacement]] = defaultdict(list)
    keys: dict[MemberId, tuple[str, ...]] = {}
    for each in replaced:
        key = keys.get(each.former_id, each.process.key)
        by_process[key].append(each)
        if each.on_same_connection:
            keys[each.came.member.member_id] = key
    for times in by_process.values():
        yield from runs(times, _is_soon_again)


def _is_soon_again(run: Sequence[Replacement], each: Replacement) -> bool:
    """Return whether a process left again soon after it last came back or left."""
    return min(each.begin_ms - run[-1].end_ms, each.begin_ms - run[-1].begin_ms) <= CRASH_LOOP_NEXT_MS


def silent_again(view: EpisodeView, last: Replacement) -> Went | None:
    """Return the departure of a process that fell silent again soon after it had come back, unless others fell silent
    with it.
    """
    silent = [act for act in view.free(Went) if act.is_silent]
    went = next((act for act in silent if act.member.member_id == last.came.member.member_id), None)
    if went is None or went.seq in view.episode.paired_seqs or went.at_ms - last.end_ms > CRASH_LOOP_NEXT_MS:
        return None
    is_alone = all(act is went or abs(act.last_seen_ms - went.last_seen_ms) > SAME_MOMENT_MS for act in silent)
    return went if is_alone and call_for(view.episode, went) is None else None


def lost_again(view: EpisodeView, last: Replacement) -> Went | None:
    """Return the last departure of a process that had survived earlier ones, fell silent again, and may still come
    back.

    Nothing shows that it ended, and the history ends before the time to come back is over.
    """
    went = silent_again(view, last)
    if went is None or ending(view.episode, went) is Ending.ENDED or is_over(view.episode, went):
        return None
    return went


def is_over(episode: Episode, went: Went) -> bool:
    """Return whether the history covers the time that a process may take to come back."""
    return episode.known_until_ms is None or episode.known_until_ms - went.at_ms > REPLACED_MS


def nobody_took(episode: Episode, went: Went, place: str) -> str:
    """Say that up to the end of the history no process replaced it."""
    return f"no process took {place}" if is_over(episode, went) else f"no process has taken {place} so far"


def would_be_heard(run: Iterable[Replacement]) -> bool:
    """Return whether the log would show that a silent process was alive and was heard from again (format level 4)."""
    return all(each.went is None or not each.went.is_silent or each.went.heard is not None for each in run)


def how_it_went(went: Went | None) -> str:
    if went is None:
        return "rejoined under a new member id"
    if went.how is Departure.LEFT:
        return "left and came back"
    return "was not heard from and came back"


def fenced_before(episode: Episode, replacements: Sequence[Replacement]) -> Iterator[Statement]:
    """Yield statements about live processes whose instance id was taken over, and whose requests were fenced."""
    for each in replacements:
        if isinstance(each.came, CameBack) and episode.fenced_after(each.came):
            yield former_statement(episode, each.came)


def advice_on(run: Sequence[Replacement]) -> tuple[str, ...]:
    is_one = len({each.process.key for each in run}) == 1
    if any(each.process.grade is not Grade.RECORDED for each in run):
        return (INSTANCE_ID if is_one else INSTANCE_IDS,)
    slow = [each for each in run if each.went is not None and each.went.how is Departure.EXPIRED]
    if not slow:
        return ()
    restarts, them = ("restart", "it") if len(slow) == 1 else ("restarts", "them")
    longer = f"a longer one would have absorbed {them}; {WAITED_FOR}"
    return (f"the session timeout is shorter than the {restarts}: {longer}",)
