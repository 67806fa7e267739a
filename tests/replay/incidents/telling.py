"""The incidents of `muster.replay.incidents`, in the form that the judge reads."""

from muster.replay.incidents.incident import Incident
from muster.replay.text.times import wall_ms_of
from tests.judge.telling import Telling
from tests.replay.incidents.levels import at_level
from tests.replay.whole import History, incidents


def tell(history: History, until_ms: int) -> list[Telling]:
    """Return the incidents of a history; the judge's clock is not needed."""
    del until_ms
    return [_telling(incident) for incident in incidents(history)]


def _telling(incident: Incident) -> Telling:
    ended_at = incident.ended_at
    return Telling(
        key=incident.id,
        kind=incident.kind,
        culprits=tuple(member.member_id for member in incident.affected or incident.culprits),
        span=(wall_ms_of(incident.started_at), None if ended_at is None else wall_ms_of(ended_at)),
        rebalances=frozenset(
            (each.incarnation, each.to_generation) for each in incident.rebalances if each.to_generation is not None
        ),
        parent=incident.parent,
        grade=incident.grade.value,
    )


def tell_older(history: History, until_ms: int) -> list[Telling]:
    """Return the incidents that a log of format level 3, which recorded less, would show."""
    return tell(at_level(history, 3), until_ms)
