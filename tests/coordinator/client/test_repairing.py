"""Repairing a group through the admin API: the requests, and groups that need no repair."""

import pytest

from muster.coordinator.client.coordinator_link import Refused
from muster.coordinator.group.commands import AnyRequest, ConfigOperation, DescribeGroup, DescribeGroupConfig
from muster.coordinator.group.configs import ANEW, REPAIR
from muster.coordinator.group.outcomes import DescribeGroupConfigOutcome, GroupDamage, Outcome
from tests.coordinator.client.test_admin import (
    DONE,
    EMPTY_GROUP,
    UNKNOWN_GROUP,
    administered,
    altered,
    altering,
    change,
)

DAMAGE = GroupDamage(partition=3, unreadable=(), generation_id=4, members=2, registered=(), configs={})


async def test_the_repair_is_requested() -> None:
    async with administered(altering(DONE)) as (admin, server):
        await admin.repair_group("orders")
        assert altered(server) == [((change(REPAIR, ConfigOperation.SET, ANEW),), False)]


async def test_damage_is_reported_only_for_a_damaged_group() -> None:
    """A healthy group has none; a group that does not exist is an error."""
    damage: GroupDamage | None = DAMAGE
    group = EMPTY_GROUP

    def outcome(command: AnyRequest) -> Outcome | None:
        if isinstance(command, DescribeGroupConfig):
            return DescribeGroupConfigOutcome(values={}, damage=damage)
        assert isinstance(command, DescribeGroup)
        return group

    async with administered(outcome) as (admin, _):
        assert await admin.describe_damage("orders") == DAMAGE
        damage = None
        assert await admin.describe_damage("orders") is None
        group = UNKNOWN_GROUP
        with pytest.raises(Refused, match="GROUP_ID_NOT_FOUND"):
            await admin.describe_damage("orders")
