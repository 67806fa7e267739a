"""The errors that members noticed, told from those that their clients hide.

A member has to act on the first, as when it has lost its place. On the others a client tries again by itself.
"""

from collections.abc import Iterable

import msgspec

from muster.drills.measuring.asked import Asked, Kind


class Noticed(msgspec.Struct, frozen=True, kw_only=True):
    """An error that members were answered from the fault on, by kind of request: so often, to so many."""

    kind: Kind
    error: str
    times: int
    members: int
    groups: int


def noticed(asked: Iterable[Asked], *, fault_ms: int) -> tuple[Noticed, ...]:
    """The errors that a client passes on to its member: a lost place, a rebalance, a commit that is refused."""
    return _counted((each, each.error) for each in asked if each.error and not each.is_over_before(fault_ms))


def hidden(asked: Iterable[Asked], *, fault_ms: int) -> tuple[Noticed, ...]:
    """The errors that a client hides: it looks for the coordinator, and tries again."""
    return _counted((each, error) for each in asked if not each.is_over_before(fault_ms) for error in each.retried)


def _counted(errors: Iterable[tuple[Asked, str]]) -> tuple[Noticed, ...]:
    found: dict[tuple[Kind, str], list[Asked]] = {}
    for each, error in errors:
        found.setdefault((each.kind, error), []).append(each)
    return tuple(
        Noticed(
            kind=kind,
            error=error,
            times=len(of_it),
            members=len({(each.group_id, each.member) for each in of_it}),
            groups=len({each.group_id for each in of_it}),
        )
        for (kind, error), of_it in sorted(found.items(), key=lambda each: (list(Kind).index(each[0][0]), each[0][1]))
    )
