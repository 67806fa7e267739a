"""The states of a group, and the result of each transition (section S). Legal transitions: `invariants.py`."""

from muster.events.events import GroupEmptied
from muster.events.state import GroupState
from tests.coordinator.group.client import subscription
from tests.coordinator.group.harness import DELAY_MS, Harness

EMPTY, PREPARING, COMPLETING, STABLE = (
    GroupState.EMPTY,
    GroupState.PREPARING_REBALANCE,
    GroupState.COMPLETING_REBALANCE,
    GroupState.STABLE,
)


def test_every_state_is_passed_through_and_stamped() -> None:
    """S1, S4: with its start time and the previous state; a change within a state updates neither."""
    h = Harness()
    a, b = h.static("a", rebalance_timeout_ms=5_000), h.dynamic("b", rebalance_timeout_ms=5_000)
    passed = []

    def note() -> None:
        image = h.live.image
        passed.append((image.previous_state, image.state))
        assert image.state_since_ms == h.wall_ms
        h.sleep(100)
        h.dynamic("nobody").heartbeat()
        assert h.live.image == image

    h.dynamic("nobody").commit()
    a.commit(generation_id=-1)
    note()
    a.join()
    note()
    h.sleep(DELAY_MS - 100)
    assert h.state is COMPLETING
    a.sync(h.assignments())
    note()
    b.enter()
    note()
    a.join()
    assert h.state is COMPLETING
    a.leave()
    note()
    b.leave()
    note()
    assert passed == [
        (EMPTY, EMPTY),
        (EMPTY, PREPARING),
        (COMPLETING, STABLE),
        (STABLE, PREPARING),
        (COMPLETING, PREPARING),
        (PREPARING, EMPTY),
    ]


def test_an_emptied_group_has_neither_leader_nor_protocol_nor_subscriptions() -> None:
    """S6, S7: the protocol type is kept for the next member."""
    h = Harness()
    (a,) = h.stable_group(h.static("a"))
    assert h.soft.subscribed_topics == frozenset({"orders"})
    assert h.live.members[a.member_id].metadata_for("range") == subscription("orders")
    (*_, last) = a.leave().events
    assert isinstance(last, GroupEmptied)
    image = h.live.image
    assert (image.leader_id, image.protocol_name, image.protocol_type) == (None, None, "consumer")
    assert h.soft.subscribed_topics == frozenset()
