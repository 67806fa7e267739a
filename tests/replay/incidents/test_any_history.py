"""Properties of the incidents of any history, even one that no fleet would produce, or one with missing parts."""

import random

import pytest

from muster.events.ids import GroupId
from muster.replay.history.items import Gap, Happened, Item
from muster.replay.incidents.grade import Grade
from muster.replay.incidents.incident import Incident
from muster.replay.incidents.kinds import KINDS
from muster.replay.incidents.telling import told
from tests.replay.play import MembershipPlay, Play
from tests.replay.played import history_of
from tests.replay.whole import History, incidents, rebalances

STEPS = 150


def history(seed: int, play: type[Play]) -> History:
    chance = random.Random(seed)
    playing = play(chance)
    for _ in range(STEPS):
        playing.step()
    return history_of(playing.harness)


def with_holes(seed: int, whole: History) -> tuple[Item, ...]:
    """Leave out a tenth of the transitions; gaps mark them."""
    chance, missing = random.Random(seed), 0
    items: list[Item] = []
    for item in whole.items:
        if isinstance(item, Happened) and chance.random() < 0.1:
            missing += 1
            continue
        if missing and isinstance(item, Happened):
            seq, incarnation = item.event.seq, item.event.incarnation
            items.append(
                Gap(position=item.position, incarnation=incarnation, first_seq=seq - missing, last_seq=seq - 1)
            )
            missing = 0
        items.append(item)
    return tuple(items)


def check(found: list[Incident]) -> None:
    ids = {each.id for each in found}
    assert len(ids) == len(found)
    assert {each.kind for each in found} <= {kind.name for kind in KINDS}
    for each in found:
        assert each.parent is None or each.parent in ids - {each.id}
        assert each.headline
        assert each.ended_at is None or each.started_at <= each.ended_at
        assert each.grade in Grade


@pytest.mark.slow
@pytest.mark.parametrize("play", [Play, MembershipPlay])
@pytest.mark.parametrize("seed", range(15))
def test_each_rebalance_has_one_incident(seed: int, play: type[Play]) -> None:
    """And each incident is well-formed."""
    whole = history(seed, play)
    found = incidents(whole)
    check(found)
    in_incidents = sorted(each.first_seq for incident in found for each in incident.rebalances)
    assert in_incidents == sorted(each.first_seq for each in rebalances(whole.group_id, whole.items))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10))
def test_a_history_with_gaps_is_reported_as_far_as_known(seed: int) -> None:
    """No error is raised, and the missing parts are incidents of their own."""
    items = with_holes(seed, history(seed, MembershipPlay))
    found = list(told(GroupId("orders"), items))
    check(found)
    assert any(each.kind == "unknown" for each in found)
