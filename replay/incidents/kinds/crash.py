"""A member that fell silent and did not come back."""

from collections.abc import Iterator

from muster.replay.incidents.acts import Departure, Went
from muster.replay.incidents.grade import Grade
from muster.replay.incidents.incident import Statement
from muster.replay.incidents.kinds.kind import Claim, Kind, View
from muster.replay.incidents.naming import process_name
from muster.replay.times import duration, instant, setting

KIND = Kind(
    "crash",
    "A process was not heard from any more, and nobody took its place within ten minutes.",
    "the process",
)


def find(view: View) -> Iterator[Claim]:
    for act in view.free(Went):
        if not act.is_silent:
            continue
        yield Claim(
            kind=KIND,
            acts=(act,),
            culprits=(act.member,),
            grade=Grade.RECORDED,
            headline=(
                f"{process_name(act.member)} fell silent without leaving, was removed {_why_removed(act)}, and nobody"
                " took its place"
            ),
            chain=(
                Statement(
                    text=f"{process_name(act.member)} was last seen",
                    grade=Grade.RECORDED,
                    at=instant(act.last_seen_ms),
                    seqs=(act.seq,),
                ),
            ),
        )


def _why_removed(act: Went) -> str:
    if act.how is Departure.EXPIRED:
        silence_ms = act.at_ms - act.last_seen_ms
        return f"after {duration(silence_ms)} (session timeout {setting(act.member.session_timeout_ms)})"
    if act.how is Departure.NOT_REJOINED:
        return f"when the rebalance timeout of {setting(act.member.rebalance_timeout_ms)} had passed without its join"
    return f"when it had not asked for its assignment within {setting(act.member.rebalance_timeout_ms)}"
