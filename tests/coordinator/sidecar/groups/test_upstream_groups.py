"""The log lines about groups that are left to others."""

import pytest
import structlog

from muster.coordinator.sidecar.groups.upstream_groups import KEPT_MS, UpstreamGroups
from muster.coordinator.upstream.group_probe import ForeignShadow, KeptUpstream, NotPermitted
from muster.events.ids import GroupId


@pytest.mark.parametrize("theirs", [ForeignShadow("another Muster", is_unnamed=False), NotPermitted("no right")])
def test_a_line_counts_the_groups_with_the_same_trouble(theirs: KeptUpstream) -> None:
    """Each group once: another Muster, or a missing permission, usually affects several groups."""
    upstream_groups = UpstreamGroups(lambda: 0)
    with structlog.testing.capture_logs() as lines:
        for group_id in ("orders", "bills", "bills"):
            upstream_groups.note(GroupId(group_id), theirs)
    assert [(line["group_id"], line["groups"]) for line in lines] == [("orders", 1), ("bills", 2)]


def test_the_status_names_them_for_a_while_with_the_way_out_until_they_are_ours() -> None:
    now_ms = [0]
    upstream_groups = UpstreamGroups(lambda: now_ms[0])
    upstream_groups.note(GroupId("orders"), KeptUpstream("upstream it has 2 members (type consumer)"))
    upstream_groups.note(GroupId("bills"), NotPermitted("no right"))
    bills, orders = upstream_groups.status()
    assert (orders.group_id, orders.reason) == ("orders", "upstream it has 2 members (type consumer)")
    assert "muster adopt orders; give clients of another kind their own group.id" in orders.way_out
    assert bills.way_out == "docs/sidecar.md#what-can-go-wrong-and-what-it-says describes what to do"
    upstream_groups.forget(GroupId("bills"))
    assert [each.group_id for each in upstream_groups.status()] == ["orders"]
    now_ms[0] += KEPT_MS
    assert upstream_groups.status() == []
