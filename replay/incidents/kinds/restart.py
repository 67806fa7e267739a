"""One process that ended and came back."""

from collections.abc import Iterator

from muster.replay.incidents.acts import CameBack, Departure
from muster.replay.incidents.grade import Grade
from muster.replay.incidents.kinds.kind import Claim, Kind, View
from muster.replay.incidents.kinds.replaced import advice_on, members_of
from muster.replay.incidents.naming import process_name
from muster.replay.incidents.replacements import Replacement
from muster.replay.times import duration

KIND = Kind(
    "restart",
    "One process ended and came back, or another one took its place; a late poll may look the same.",
    "the process",
)


def find(view: View) -> Iterator[Claim]:
    for each in view.free_replacements():
        yield Claim(
            kind=KIND,
            acts=each.acts,
            culprits=members_of([each]),
            grade=Grade.RECORDED if isinstance(each.came, CameBack) else each.process.grade,
            headline=_restart_text(each),
            advice=advice_on([each]),
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
