"""The memory of groups' coordinators is bounded, whatever clients call their groups."""

from kio.schema.errors import ErrorCode

from muster.coordinator.upstream.coordinators import Coordinators
from muster.events.ids import REMEMBERED_ID_LENGTH_MAX


def test_a_group_with_a_very_long_id_is_looked_up_each_time() -> None:
    """As many as are kept would take 3 GB."""
    coordinators, long = Coordinators(lambda: 7), "g" * REMEMBERED_ID_LENGTH_MAX
    for group_id, node_id, away in ((long, 1, (0, 7)), (long + "g", None, None)):
        coordinators.moved(group_id, ErrorCode.coordinator_load_in_progress)
        coordinators.learn(group_id, 1)
        assert (coordinators.known(group_id), coordinators.last_away(group_id)) == (node_id, away)
