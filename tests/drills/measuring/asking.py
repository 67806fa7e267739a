"""Requests for tests of the measurements."""

from muster.drills.measuring.answers import Asked, Kind

GROUP = "muster-drill-0123456789-static-0"


def request(
    begin_ms: int,
    end_ms: int | None,
    kind: Kind = Kind.HEARTBEAT,
    *,
    error: str = "",
    retried: tuple[str, ...] = (),
    member: str = "member-0",
    group: str = GROUP,
) -> Asked:
    """A request that was pending between these times."""
    return Asked(
        kind=kind, group_id=group, member=member, began_ms=begin_ms, ended_ms=end_ms, error=error, retried=retried
    )
