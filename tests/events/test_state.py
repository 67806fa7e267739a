"""The state of a group before its first event."""

from muster.events.ids import GroupId
from muster.events.state import Group, GroupImage, GroupState, new_group


def test_a_new_group_is_empty_and_has_no_generation_yet() -> None:
    """Nothing was assigned in it; it has been empty since it was made."""
    image = GroupImage(
        state=GroupState.EMPTY,
        previous_state=GroupState.EMPTY,
        state_since_ms=17,
        generation_id=0,
        protocol_type=None,
        protocol_name=None,
        leader_id=None,
        assigned_generation_id=-1,
    )
    expected = Group(group_id=GroupId("orders"), incarnation=3, seq=0, image=image)
    assert new_group(GroupId("orders"), incarnation=3, wall_ms=17) == expected
