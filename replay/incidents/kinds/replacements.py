"""Processes that went and came back: one, one again and again, many."""

from collections import defaultdict
from collections.abc import Iterator, Sequence

from muster.events.state import Member
from muster.replay.incidents.acts import AnyAct, Came, CameBack, Departure, Went
from muster.replay.incidents.episode import Replacement
from muster.replay.incidents.grade import Grade
from muster.replay.incidents.incident import Statement
from muster.replay.incidents.kinds.kind import Claim, Kind, View
from muster.replay.incidents.naming import process_name, processes
from muster.replay.incidents.windows import (
    BLUE_GREEN_MS,
    CRASH_LOOP_NEXT_MS,
    CRASH_LOOP_TIMES_MIN,
    DEPLOYMENT_NEXT_MS,
    DEPLOYMENT_PROCESSES_MIN,
    DEPLOYMENT_SHARE_MIN,
    REPLACED_MS,
)
from muster.replay.times import duration, instant
from muster.replay.why.wording import plural


def _acts(replacements: Sequence[Replacement]) -> tuple[AnyAct, ...]:
    return tuple(sorted((act for each in replacements for act in each.acts), key=lambda act: act.seq))


def _members(replacements: Sequence[Replacement]) -> tuple[Member, ...]:
    """Every member by which these processes were in the group, gone and new."""
    members = {act.member.member_id: act.member for each in replacements for act in each.acts}  # type: ignore[union-attr]
    return tuple(members.values())


def _grade(replacements: Sequence[Replacement]) -> Grade:
    recorded = all(each.process.grade is Grade.RECORDED for each in replacements)
    return Grade.RECORDED if recorded else Grade.INFERRED


def _how(went: Went | None) -> str:
    if went is None:
        return "came back under a new member id"
    if went.how is Departure.LEFT:
        return "left and came back"
    return "was not heard from and came back"


# ---- one process, again and again ------------------------------------------------------------------------------------


def _crash_loops(view: View) -> Iterator[Claim]:
    by_process: defaultdict[tuple[str, ...], list[Replacement]] = defaultdict(list)
    for each in view.free_replacements():
        by_process[each.process.key].append(each)
    for times in by_process.values():
        for run in _runs(times, CRASH_LOOP_NEXT_MS):
            if len(run) < CRASH_LOOP_TIMES_MIN:
                continue
            span_ms = run[-1].end_ms - run[0].begin_ms
            yield Claim(
                acts=_acts(run),
                culprits=_members(run),
                grade=_grade(run),
                headline=(
                    f"{process_name(run[0].member)} went and came back {len(run)} times within {duration(span_ms)}"
                ),
                advice=("look at why this process ends: each of its restarts made the whole group rebalance",),
            )


def _runs(replacements: Sequence[Replacement], next_ms: int) -> Iterator[list[Replacement]]:
    run: list[Replacement] = []
    for each in sorted(replacements, key=lambda each: each.begin_ms):
        if run and each.begin_ms - run[-1].end_ms > next_ms and each.begin_ms - run[-1].begin_ms > next_ms:
            yield run
            run = []
        run.append(each)
    if run:
        yield run


CRASH_LOOPS = Kind(
    name="crash-loop",
    about="One process went and came back three times or more, never more than ten minutes apart.",
    culprits="the process",
    find=_crash_loops,
)

# ---- many ------------------------------------------------------------------------------------------------------------


def _deployments(view: View) -> Iterator[Claim]:
    for run in _runs_by_begin(view.free_replacements(), DEPLOYMENT_NEXT_MS):
        processes_replaced = {each.process.key for each in run}
        size = max(len(view.episode.members_at(run[0].begin_ms)), len(processes_replaced))
        if len(processes_replaced) < DEPLOYMENT_PROCESSES_MIN:
            continue
        if len(processes_replaced) < size * DEPLOYMENT_SHARE_MIN:
            continue
        named = [each.member for each in {each.process.key: each for each in run}.values()]
        left = sum(each.went is not None and each.went.how is Departure.LEFT for each in run)
        at_once = len(run) > 1 and run[-1].begin_ms - run[0].begin_ms <= max(5_000, run[0].end_ms - run[0].begin_ms)
        order = "at once" if at_once else "one after another"
        how = "stopped and started" if left == len(run) else "went and came back"
        yield Claim(
            acts=_acts(run),
            culprits=_members(run),
            grade=_grade(run),
            headline=(
                f"{plural(len(named), 'process')} of {size} {how} {order}, within"
                f" {duration(max(each.end_ms for each in run) - run[0].begin_ms)}: {processes(named)}".replace(
                    "processs", "processes"
                )
            ),
            chain=tuple(
                Statement(
                    text=f"{process_name(each.member)} {_how(each.went)}",
                    grade=each.process.grade,
                    at=instant(each.begin_ms),
                    seqs=tuple(act.seq for act in each.acts),
                )
                for each in run
            ),
            advice=_advice(run),
        )


def _runs_by_begin(replacements: Sequence[Replacement], next_ms: int) -> Iterator[list[Replacement]]:
    run: list[Replacement] = []
    for each in replacements:
        if run and each.begin_ms - run[-1].begin_ms > next_ms:
            yield run
            run = []
        run.append(each)
    if run:
        yield run


def _advice(run: Sequence[Replacement]) -> tuple[str, ...]:
    if any(each.process.grade is not Grade.RECORDED for each in run):
        return (
            "with a group.instance.id each, and a session timeout above the time of a restart, none would rebalance",
        )
    slow = [each for each in run if each.went is not None and each.went.how is Departure.EXPIRED]
    if slow:
        return ("the session timeout is shorter than the restarts: a longer one would have absorbed them",)
    return ()


DEPLOYMENTS = Kind(
    name="deployment",
    about="Two or more processes, and a third of the group at least, were replaced one after another or at once.",
    culprits="all processes that were replaced",
    find=_deployments,
)


def _blue_green(view: View) -> Iterator[Claim]:
    came = list(view.free(Came))
    went = [act for act in view.free(Went) if act.how is Departure.LEFT]
    if len(came) < DEPLOYMENT_PROCESSES_MIN or len(came) != len(went):
        return
    acts: list[Came | Went] = sorted([*came, *went], key=lambda act: act.seq)
    if acts[-1].at_ms - acts[0].at_ms > BLUE_GREEN_MS + REPLACED_MS:
        return
    first_went, last_came = went[0].at_ms, came[-1].at_ms
    before = view.episode.members_at(acts[0].at_ms)
    gone = {act.member.member_id for act in went}
    if not gone >= before or not (last_came <= first_went or went[-1].at_ms <= came[0].at_ms):
        return
    yield Claim(
        acts=tuple(acts),
        culprits=tuple(act.member for act in acts),
        grade=Grade.INFERRED,
        headline=(
            f"{len(came)} new processes came and the {len(went)} old ones left, within"
            f" {duration(acts[-1].at_ms - acts[0].at_ms)}"
        ),
    )


BLUE_GREEN = Kind(
    name="blue-green",
    about="As many new processes came as there were, and the old ones left.",
    culprits="all of the new and of the old ones",
    find=_blue_green,
)

# ---- one -------------------------------------------------------------------------------------------------------------

_POLL_REASONS = ("max.poll.interval", "poll timeout", "poll time-out")


def is_poll_timeout(went: Went) -> bool:
    """Whether the client says that its poll was late."""
    reason = (went.why.client_reason or "").lower()
    return any(words in reason for words in _POLL_REASONS)


def _poll_timeouts(view: View) -> Iterator[Claim]:
    back = {each.went.seq: each for each in view.free_replacements() if each.went is not None}
    for went in view.free(Went):
        if went.how is not Departure.LEFT or not is_poll_timeout(went):
            continue
        each = back.get(went.seq)
        again = f", and came back {duration(each.came.at_ms - went.at_ms)} later" if each is not None else ""
        yield Claim(
            acts=each.acts if each is not None else (went,),
            culprits=_members([each]) if each is not None else (went.member,),
            grade=Grade.RECORDED,
            headline=(
                f"{process_name(went.member)} did not poll within max.poll.interval.ms and left{again}; the client"
                f' says: "{went.why.client_reason}"'
            ),
            advice=("raise max.poll.interval.ms, or lower max.poll.records, so that a batch is done within it",),
        )


POLL_TIMEOUTS = Kind(
    name="poll-timeout",
    about="A member did not poll within max.poll.interval.ms and left by itself, and its client says so.",
    culprits="the member",
    find=_poll_timeouts,
)


def _restarts(view: View) -> Iterator[Claim]:
    for each in view.free_replacements():
        yield Claim(
            acts=each.acts,
            culprits=_members([each]),
            grade=Grade.RECORDED if isinstance(each.came, CameBack) else each.process.grade,
            headline=_restart_text(each),
            advice=_advice([each]),
        )


def _restart_text(each: Replacement) -> str:
    name = process_name(each.member)
    if each.went is None:
        assert isinstance(each.came, CameBack)
        kept = ", and kept its partitions" if each.came.absorbed else ""
        return f"{name} came back under a new member id{kept}"
    gap_ms = each.came.at_ms - each.gone_ms
    if each.went.how is Departure.LEFT:
        return f"{name} left, then came back {duration(gap_ms)} later: a restart or a poll time-out"
    session = duration(each.went.member.session_timeout_ms)
    if gap_ms < 0:
        return f"{name} was not heard from for its session timeout of {session}, and came back"
    if each.came.at_ms < each.went.at_ms:
        return (
            f"{name} was restarted: it was last seen {duration(gap_ms)} before it came back, and its former member id"
            f" was waited for until its session timeout of {session} had passed"
        )
    return f"{name} was not heard from for its session timeout of {session}, and came back {duration(gap_ms)} later"


RESTARTS = Kind(
    name="restart",
    about="One process ended and came back, or another one took its place; a late poll may look the same.",
    culprits="the process",
    find=_restarts,
)
