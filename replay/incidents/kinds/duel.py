"""Two live processes with one instance id."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

from muster.replay.incidents.episode.acts import AnyAct, CameBack, Duelled
from muster.replay.incidents.grade import Grade
from muster.replay.incidents.incident import Statement
from muster.replay.incidents.kinds.kind import EpisodeView, IncidentClaim, Kind
from muster.replay.incidents.windows import SAME_DUEL_MS
from muster.replay.rebalances.wording import host
from muster.replay.text.grammar import plural
from muster.replay.text.times import instant, moment

A = TypeVar("A", CameBack, Duelled)

KIND = Kind(
    "duel",
    "Two live processes have the same group.instance.id, and take it from each other.",
    "the member with the instance id",
)


def find(view: EpisodeView) -> Iterator[IncidentClaim]:
    by_instance: defaultdict[str, list[Duelled]] = defaultdict(list)
    for act in view.free(Duelled):
        if act.why.group_instance_id is not None:
            by_instance[act.why.group_instance_id].append(act)
    for instance, acts_on_it in by_instance.items():
        duels = [act for act in acts_on_it if act.is_duel and _is_fought(act, acts_on_it)]
        if not duels:
            continue
        fenced = [
            act
            for act in acts_on_it
            if not act.is_duel and duels[0].at_ms - SAME_DUEL_MS <= act.at_ms <= duels[-1].at_ms + SAME_DUEL_MS
        ]
        taken = [
            act
            for act in view.free(CameBack)
            if act.member.group_instance_id == instance
            and duels[0].at_ms - SAME_DUEL_MS <= act.at_ms <= duels[-1].at_ms + SAME_DUEL_MS
        ]
        acts: list[AnyAct] = sorted([*duels, *fenced, *taken], key=lambda act: act.seq)
        one = _who(duels[-1].why.client_id, duels[-1].why.client_host)
        other = _who(duels[-1].event.current_client_id, duels[-1].event.current_client_host)
        times = sum(act.times for act in fenced)
        counted = f"; {plural(times, 'request')} of theirs {'was' if times == 1 else 'were'} fenced" if times else ""
        yield IncidentClaim(
            kind=KIND,
            at_ms=acts[0].at_ms,
            acts=tuple(acts),
            culprits=tuple({act.member.member_id: act.member for act in taken}.values())[-1:],
            grade=Grade.RECORDED,
            headline=(
                f"two live processes kept taking the instance id '{instance}' from each other, {one} and"
                f" {other}{counted}"
            ),
            chain=(*_takings(taken), *_fences(fenced)),
            advice=("give each process a group.instance.id of its own",),
        )


def _is_fought(duel: Duelled, acts: Sequence[Duelled]) -> bool:
    """Return whether another duel, or a fenced request, happened close to this one.

    For some minutes after the last fenced request the coordinator also records a duel if a process is just restarted.
    """
    return any(act is not duel and abs(act.at_ms - duel.at_ms) <= SAME_DUEL_MS for act in acts)


def _who(client_id: str | None, client_host: str | None) -> str:
    """E.g. 'client orders-1 at 10.0.0.7'. Two processes on one host differ only by their client ids, if at all."""
    return f"client {client_id or '(none)'} at {host(client_host or '') or 'an unknown host'}"


def _by_client(acts: Iterable[A], who: Callable[[A], str]) -> Iterator[tuple[str, list[A]]]:
    found: defaultdict[str, list[A]] = defaultdict(list)
    for act in acts:
        found[who(act)].append(act)
    yield from found.items()


def _takings(taken: Iterable[CameBack]) -> Iterator[Statement]:
    """State for each client how often it took the instance id."""
    for who, acts in _by_client(taken, lambda act: _who(act.member.client_id, act.member.client_host)):
        yield _statement(f"{who} took the instance id{_times(len(acts))}", acts)


def _fences(fenced: Iterable[Duelled]) -> Iterator[Statement]:
    """State for each client how many of its requests were fenced."""
    for who, acts in _by_client(fenced, lambda act: _who(act.why.client_id, act.why.client_host)):
        times = sum(act.times for act in acts)
        requests = "a request" if times == 1 else f"{times} requests"
        are = "was" if times == 1 else "were"
        yield _statement(f"{requests} of {who} {are} fenced: the other one had taken it", acts)


def _statement(text: str, acts: Sequence[AnyAct]) -> Statement:
    until = f", the last one at {moment(acts[-1].at_ms)}" if len(acts) > 1 else ""
    return Statement(
        text=f"{text}{until}",
        grade=Grade.RECORDED,
        at=instant(acts[0].at_ms),
        seqs=tuple(dict.fromkeys((acts[0].seq, acts[-1].seq))),
    )


def _times(times: int) -> str:
    return "" if times == 1 else f" {times} times"
