"""Statements about standbys that were called for the partitions of lost members (`target.group.size`)."""

from collections.abc import Iterable, Iterator

from muster.replay.incidents.episode.acts import AnyAct, Called, TookOver, Went
from muster.replay.incidents.episode.episode import Episode
from muster.replay.incidents.evidence.naming import process_name
from muster.replay.incidents.grade import Grade
from muster.replay.incidents.incident import Statement
from muster.replay.rebalances.rebalance import ref
from muster.replay.text.times import duration, instant


def call_for(episode: Episode, went: Went) -> Called | None:
    """Return the call of a standby for the lost member's partitions; None if there was none."""
    return next((act for act in episode.of(Called) if act.lost == went.member.member_id), None)


def call_text(episode: Episode, call: Called, what: str = "its partitions") -> str:
    """Return a call's outcome: 'the standby 'app-4' (10.0.1.4) took over its partitions 850 ms later'."""
    standby = f"the standby {process_name(call.member)}"
    took_over = _taking_over(episode, call)
    if took_over is not None:
        later = duration(took_over.at_ms - call.at_ms)
        return f"{standby} took over {what} {later} later: no other member was affected"
    was_late = any(each.first_seq > call.seq for each in episode.rebalances)
    end = "had not asked for them when the group rebalanced" if was_late else "has not asked for them so far"
    return f"{standby} was called for {what}, and {end}"


def calls(episode: Episode, acts: Iterable[AnyAct]) -> Iterator[Statement]:
    """Yield statements about the calls for members that were lost."""
    for went in (act for act in acts if isinstance(act, Went)):
        call = call_for(episode, went)
        if call is not None:
            took_over = _taking_over(episode, call)
            yield Statement(
                text=call_text(episode, call, f"the partitions of {process_name(went.member)}"),
                grade=Grade.RECORDED,
                at=instant(call.at_ms),
                seqs=(call.seq,) if took_over is None else (call.seq, took_over.seq),
            )


def _taking_over(episode: Episode, call: Called) -> TookOver | None:
    """Return the standby's takeover, found by identity, since a static standby that restarted meanwhile has a new
    member id.
    """
    identity = ref(call.member).identity
    return next(
        (act for act in episode.of(TookOver) if act.seq > call.seq and ref(act.member).identity == identity), None
    )
