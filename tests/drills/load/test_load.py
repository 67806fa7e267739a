"""When groups count as formed, and requests as measured."""

import pytest

from muster.drills.load.asking import Clock, Membership
from muster.drills.load.load import Load
from muster.drills.measuring.answers import Kind
from muster.drills.names import Names
from muster.drills.plan import Load as Planned
from muster.drills.plan import ServiceFailed
from muster.events.kafka.security import NOT_SECURED
from tests.drills.measuring.asking import request

FOREVER_S = 60.0
SOON_S = 0.2


def load() -> Load:
    """One group of three static members, the last of which only restarts; no requests have been sent."""
    planned = Planned(groups=1, members=3)
    return Load("127.0.0.1:1", planned, Names("0123456789"), Clock(), topic="t", security=NOT_SECURED)


@pytest.mark.parametrize(
    ("places", "formed"),
    [
        (((2, 0), (2, 1), (2, 2)), 1),
        (((2, 0), (2, 1), (1, 2)), 1),  # a restarting member may learn of the next generation later
        (((2, 0), (1, 1), (2, 2)), 0),
        (((-1, 0), (-1, 1), (-1, 2)), 0),
        (((2, 0), (2, 0), (2, 2)), 0),
        (((2, 0), (2, None), (2, 2)), 0),
    ],
)
def test_a_group_has_formed_when_all_have_a_partition_of_their_own_in_one_generation(
    places: tuple[tuple[int, int | None], ...], formed: int
) -> None:
    begun = load()
    for member, (generation_id, partition) in zip(begun.members, places, strict=True):
        member._at = Membership(member_id=member.name, generation_id=generation_id, partition=partition)
    assert begun._formed() == formed


async def test_earlier_requests_are_not_in_later_measurements() -> None:
    """There have to be heartbeats and commits after that time, with responses."""
    begun = load()
    begun._asking.asked += [request(900, 1_100), request(1_000, 1_100, Kind.COMMIT), request(1_000, None)]
    with pytest.raises(ServiceFailed, match="no heartbeats were answered within"):
        await begun.measured_since(1_000, within_s=SOON_S)
    begun._asking.asked.append(request(1_000, 1_200))
    await begun.measured_since(1_000, within_s=FOREVER_S)
