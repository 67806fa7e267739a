"""Incidents in a row without quiet times in between: each is reported as if nothing else happened."""

from collections.abc import Callable
from functools import partial

import msgspec
import pytest

from muster.coordinator.group.commands import DeleteGroup
from muster.replay.fleet.simulation.world import outages
from muster.replay.fleet.simulation.world.rules import GROUP_ID
from muster.replay.incidents.incident import Incident
from tests.replay.incidents.fleet import Fleet, shown
from tests.replay.whole import incidents

S = 1_000
APART_MS = 330 * S
"""Longer than the limit within an incident, shorter than the limit between episodes."""
ENFORCED = "rebalance enforced by user"


def all_restart(fleet: Fleet) -> None:
    """The group is empty in between."""
    for each in fleet.world.live:
        fleet.restart(int(each.name.removeprefix("app-")), 30 * S)


def restart(fleet: Fleet) -> None:
    fleet.restart(6, 25 * S)


def late_poll(fleet: Fleet) -> None:
    fleet[2].stop_polling()
    fleet.world.at(40 * S, fleet[2].poll_again)


def slow_member(fleet: Fleet) -> None:
    leader = fleet.world.leader()
    follower = next(each for each in fleet.world.live if each is not leader)
    follower.slow_ms = 50 * S
    leader.rejoin_soon(ENFORCED)


def slow_leader(fleet: Fleet) -> None:
    fleet.world.leader().assign_slow_ms = 40 * S
    fleet.world.leader().rejoin_soon(ENFORCED)


def unused_id(fleet: Fleet) -> None:
    ghost = fleet.start(9)
    ghost.uses_its_id = False
    fleet.run(S)
    ghost.die()
    fleet.world.leader().rejoin_soon(ENFORCED)


def crash(fleet: Fleet) -> None:
    fleet[8].die()


def network_cut(fleet: Fleet) -> None:
    cut_off = [fleet[number] for number in (4, 5, 7)]
    outages.cut(fleet.world, cut_off)
    fleet.world.at(30 * S, partial(outages.heal, fleet.world, cut_off))


def more_partitions(fleet: Fleet) -> None:
    fleet.world.partitions["orders"] += 12
    fleet.world.leader().rejoin_soon()


def other_topics(fleet: Fleet) -> None:
    fleet.world.partitions["payments"] = 6
    leader = fleet.world.leader()
    leader.setup = leader.setup.but(topics=("orders", "payments"))
    leader.rejoin_soon()


def takeover(fleet: Fleet) -> None:
    fleet.away(5 * S)


def scale_up(fleet: Fleet) -> None:
    fleet.start(10)
    fleet.start(11)


def scale_down(fleet: Fleet) -> None:
    fleet[3].close()


def crash_loop(fleet: Fleet) -> None:
    for _ in range(3):
        fleet.restart(6, 15 * S, kill=True)
        fleet.rest(30 * S)


def late_beyond_the_timeout(fleet: Fleet) -> None:
    """A static member keeps its place nevertheless."""
    slow_member(fleet)
    for each in fleet.world.live:
        each.slow_ms *= 2


def stands_still(fleet: Fleet) -> None:
    fleet[5].freeze()
    fleet.world.at(40 * S, fleet[5].thaw)


def deleted(fleet: Fleet) -> None:
    """Some time after its last member has left."""
    for each in fleet.world.live:
        each.close()
    fleet.rest(100 * S)
    fleet.world.administer(fleet.story, lambda caller: DeleteGroup(group_id=GROUP_ID, caller=caller))


ROW: tuple[Callable[[Fleet], None], ...] = (
    restart,  # of the process in a loop at the other end
    all_restart,
    late_poll,
    slow_member,
    slow_leader,
    unused_id,
    crash,
    network_cut,
    more_partitions,
    other_topics,
    takeover,
    scale_up,
    scale_down,
    crash_loop,
)


def kinds_of_incidents(*row: Callable[[Fleet], None]) -> list[str]:
    """Return the kinds of the incidents in turn."""
    fleet = Fleet(8, session_ms=20 * S)
    for do in row:
        do(fleet)
        fleet.rest(APART_MS)
    found = fleet.told()
    assert all(each.grade != "unknown" for each in found), "\n".join(map(shown, found))
    return [each.kind for each in found]


@pytest.mark.parametrize("row", [ROW, ROW[::-1]], ids=["in this order", "in the other"])
def test_consecutive_incidents_are_reported_like_single_ones(row: tuple[Callable[[Fleet], None], ...]) -> None:
    """No matter what happened before or after."""
    alone = {do: kinds_of_incidents(do) for do in ROW}
    assert kinds_of_incidents(*row) == [each for do in row for each in alone[do]]


@pytest.mark.parametrize(("static", "jump_ms"), [(0, 3_600 * S), (8, -3_600 * S)])
@pytest.mark.parametrize(
    "do", [*(each for each in ROW if each is not takeover), late_beyond_the_timeout, stands_still, deleted]
)
def test_a_clock_jump_does_not_change_later_reports(do: Callable[[Fleet], None], static: int, jump_ms: int) -> None:
    """With one owner, only the notes on the jump differ: no time or duration is off by the hour of the jump."""

    def told_after(jump_ms: int) -> list[Incident]:
        fleet = Fleet(8, static=static, session_ms=20 * S)
        fleet.world.rules.wall_offset_ms += jump_ms
        fleet.start(12)
        fleet.rest(30 * S)
        do(fleet)
        fleet.rest(60 * S)
        return list(map(_without_notes, incidents(fleet.history())))

    assert told_after(jump_ms) == told_after(0)


def _without_notes(incident: Incident) -> Incident:
    rebalances = (msgspec.structs.replace(each, notes=()) for each in incident.rebalances)
    return msgspec.structs.replace(incident, notes=(), rebalances=tuple(rebalances))
