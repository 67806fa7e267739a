"""The group's state machine equals its table."""

import itertools

import msgspec
import pytest

from muster.coordinator.group import transitions
from muster.coordinator.group.transitions import (
    VALID_PREVIOUS_STATES,
    IllegalTransition,
    assert_valid_transition,
)
from muster.events.ids import GroupId
from muster.events.state import GroupState
from tests.coordinator.group.harness import Harness

TRANSITIONS = {(before, after) for after, valid in VALID_PREVIOUS_STATES.items() for before in valid}


def test_the_table_in_prose_is_the_table_in_code() -> None:
    """Each transition is described, and no others."""
    rows = [line.split()[:2] for line in (transitions.__doc__ or "").splitlines() if line.startswith("    ")]
    assert {(GroupState(before), GroupState(after)) for before, after in rows[1:]} == TRANSITIONS


@pytest.mark.parametrize(("before", "after"), sorted(itertools.product(GroupState, GroupState)), ids=str)
def test_no_other_transition_is_made(before: GroupState, after: GroupState) -> None:
    """The error names the group and both states."""
    if (before, after) in TRANSITIONS:
        assert_valid_transition(GroupId("orders"), before, after)
    else:
        with pytest.raises(IllegalTransition, match=f"'orders': {after.value} .*, not {before.value}"):
            assert_valid_transition(GroupId("orders"), before, after)


def test_a_rule_that_breaks_the_table_changes_nothing() -> None:
    """The decision raises; the group and its soft state are unchanged."""
    h = Harness()
    h.stable_group(h.static("a"))
    h.live.image = msgspec.structs.replace(h.live.image, state=GroupState.DEAD)
    group, soft = h.live.copy(), h.soft.copy()
    with pytest.raises(IllegalTransition, match="PreparingRebalance can only follow"):
        h.static("b").enter()
    assert (h.group, h.soft) == (group, soft)
