"""The log lines about groups that are left to others."""

from typing import cast

import pytest
import structlog

from muster.coordinator.load.answer_memory import HELD_BYTES_MAX
from muster.coordinator.sidecar.apis.membership import MembershipApi
from muster.coordinator.sidecar.groups.moves import Moves
from muster.coordinator.sidecar.groups.routing import GroupRouter
from muster.coordinator.upstream.group_probe import ForeignShadow, KeptUpstream, NotPermitted
from muster.events.ids import GroupId
from tests.coordinator.scripted import ManualTimers, ScriptedGroups, new_service
from tests.coordinator.sidecar.relaying import parks_joins


@pytest.mark.parametrize("theirs", [ForeignShadow("another Muster", is_unnamed=False), NotPermitted("no right")])
def test_a_line_counts_the_groups_with_the_same_trouble(theirs: KeptUpstream) -> None:
    """Each group once: another Muster, or a right that is missing, is seldom one group's trouble alone."""
    service = new_service(ScriptedGroups(parks_joins), ManualTimers(), held_bytes_max=HELD_BYTES_MAX)
    api = MembershipApi(service, cast("GroupRouter", None), cast("Moves", None), lambda _: False)
    with structlog.testing.capture_logs() as lines:
        for group_id in ("orders", "bills", "bills"):
            api._log_not_taken("group not taken: another Muster has it", GroupId(group_id), theirs)
    assert [(line["group_id"], line["groups"]) for line in lines] == [("orders", 1), ("bills", 2)]
