"""The group's state machine: which state may follow which (S1), as Kafka's `ClassicGroupState` has it.

    from                 to                   when
    Empty                PreparingRebalance   the first member joins
    Empty                Dead                 the group is deleted, or expires with its last offset
    PreparingRebalance   CompletingRebalance  all members have joined, or the rebalance timeout has passed
    PreparingRebalance   Empty                the join phase ends and no member is left
    CompletingRebalance  Stable               the leader has sent the assignment
    CompletingRebalance  PreparingRebalance   a member joins, leaves, expires or changes its metadata
    Stable               PreparingRebalance   the same, or an administrator asks for a rebalance

`Turn.enter` refuses every other transition. Requesting one is a bug of ours, never a client's: `decide` raises, so
nothing is written and the group stays as it was. The sender is answered UNKNOWN_SERVER_ERROR, a deadline is retried a
second later (`runtime/partition/command_processor.py`); the group is not quarantined, since its history is sound.
Kafka also moves groups with members to Dead, to unload them; here an owner that gives a partition up writes nothing
about them.
"""

from collections.abc import Mapping

from muster.events.ids import GroupId
from muster.events.state import GroupState

VALID_PREVIOUS_STATES: Mapping[GroupState, frozenset[GroupState]] = {
    GroupState.EMPTY: frozenset({GroupState.PREPARING_REBALANCE}),
    GroupState.PREPARING_REBALANCE: frozenset(
        {GroupState.EMPTY, GroupState.COMPLETING_REBALANCE, GroupState.STABLE},
    ),
    GroupState.COMPLETING_REBALANCE: frozenset({GroupState.PREPARING_REBALANCE}),
    GroupState.STABLE: frozenset({GroupState.COMPLETING_REBALANCE}),
    GroupState.DEAD: frozenset({GroupState.EMPTY}),
}
"""The states from which each state may be entered. Kafka calls this `validPreviousStates`."""


class IllegalTransition(AssertionError):
    """A rule tried to move a group to a state that cannot follow its current one: a bug of ours."""


def assert_valid_transition(group_id: GroupId, before: GroupState, after: GroupState) -> None:
    """Raise IllegalTransition unless `after` may follow `before`."""
    valid = VALID_PREVIOUS_STATES[after]
    if before not in valid:
        states = " or ".join(sorted(state.value for state in valid))
        raise IllegalTransition(f"group {group_id!r}: {after.value} can only follow {states}, not {before.value}")
