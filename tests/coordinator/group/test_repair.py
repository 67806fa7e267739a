"""A repair keeps the readable part of a group; without any it creates an empty group."""

import pytest
from kio.schema.errors import ErrorCode

from muster.coordinator.group.commands import AlterGroupConfig, ConfigChange, ConfigOperation
from muster.coordinator.group.configs import ANEW, REGISTERED, REPAIR
from muster.coordinator.group.repair import describe_damage, repair_group, repair_refusal
from muster.coordinator.group.settings import GroupSettings
from muster.coordinator.group.turn import Now
from muster.events.damage import Damage
from muster.events.ids import GroupId
from muster.events.state import NOT_CONFIGURED, GroupState
from tests.coordinator.group.harness import Harness

MOMENT = Now(monotonic_ms=0, wall_ms=0, owner_epoch=2, incarnation=9)


@pytest.mark.parametrize("is_readable", [True, False])
def test_a_repair_keeps_the_settings_and_registrations_that_can_be_read(is_readable: bool) -> None:
    """The generation continues. If nothing can be read, the group is a new one."""
    h = Harness()
    h.stable_group(h.static("a"))
    h.set(members_registration_timeout_ms="60000")
    h.alter((REGISTERED, ConfigOperation.SET, "c"))
    group = h.live if is_readable else None
    damage = Damage(group_id=GroupId(h.group_id), partition=0, group=group, broken=(), keys=())
    command = AlterGroupConfig(
        caller=h.dynamic().caller(44, 1),
        group_id=damage.group_id,
        changes=(ConfigChange(name=REPAIR, operation=ConfigOperation.SET, value=ANEW),),
        validate_only=False,
    )
    repaired, _ = repair_group(damage, command, MOMENT, GroupSettings())
    assert (repaired.state, repaired.incarnation, dict(repaired.members)) == (GroupState.EMPTY, 9, {})
    assert list(repaired.registrations) == (["c"] if is_readable else [])
    assert repaired.config == (h.live.config if is_readable else NOT_CONFIGURED)
    assert repaired.generation_id == (h.live.generation_id + 1 if is_readable else 0)
    assert describe_damage(damage).registered == (("c",) if is_readable else ())


ASKED = ConfigChange(name=REPAIR, operation=ConfigOperation.SET, value=ANEW)


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ((ASKED,), None),
        ((ConfigChange(name=REPAIR, operation=ConfigOperation.SET, value="now"),), ErrorCode.invalid_config),
        ((ConfigChange(name=REPAIR, operation=ConfigOperation.APPEND, value=ANEW),), ErrorCode.invalid_config),
        ((ASKED, ConfigChange(name=REGISTERED, operation=ConfigOperation.SET, value="c")), ErrorCode.invalid_request),
    ],
)
def test_a_repair_must_be_the_only_config_and_be_confirmed(
    changes: tuple[ConfigChange, ...], error: ErrorCode | None
) -> None:
    """It removes members, so it must not happen by a mistake of a tool."""
    refusal = repair_refusal(changes)
    assert (refusal and refusal.error) == error
