"""A member that fell silent and did not come back."""

from collections.abc import Iterator

from muster.replay.incidents.acts import Went
from muster.replay.incidents.grade import Grade
from muster.replay.incidents.incident import Statement
from muster.replay.incidents.kinds.kind import Claim, Kind, View
from muster.replay.incidents.naming import process_name
from muster.replay.times import duration, instant

KIND = Kind(
    "crash",
    "A process was not heard from any more, and nobody took its place within ten minutes.",
    "the process",
)


def find(view: View) -> Iterator[Claim]:
    for act in view.free(Went):
        if not act.is_silent:
            continue
        session = duration(act.member.session_timeout_ms)
        silence_ms = act.at_ms - act.last_seen_ms
        yield Claim(
            kind=KIND,
            acts=(act,),
            culprits=(act.member,),
            grade=Grade.RECORDED,
            headline=(
                f"{process_name(act.member)} was not heard from for {duration(silence_ms)} (session timeout {session})"
                " and did not come back"
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
