"""A drill deletes what it has created, and nothing else."""

import pytest

from muster.drills.names import Names
from muster.drills.plan import NotOurs
from muster.drills.service.cluster import delete_groups
from muster.events.kafka.security import NOT_SECURED

NOBODY = "127.0.0.1:1"


@pytest.mark.parametrize("group_id", ["orders", "muster-drill-9876543210-static-0"])
async def test_nothing_is_requested_for_a_group_of_others(group_id: str) -> None:
    """Not even for the drill's own group in the same request."""
    names = Names("0123456789")
    with pytest.raises(NotOurs, match=f"group {group_id} was not made by this drill"):
        await delete_groups(NOBODY, names, [names.group(0, static=True), group_id], NOT_SECURED)
