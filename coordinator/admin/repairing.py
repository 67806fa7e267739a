"""Repairing a quarantined group: its damage, and the repair. `muster groups repair` uses these functions."""

import msgspec

from muster.coordinator.admin.group_admin import GroupAdmin
from muster.coordinator.group.configs import ANEW, REPAIR
from muster.coordinator.group.outcomes import GroupDamage


async def damage_of(admin: GroupAdmin, group_id: str) -> GroupDamage | None:
    """Describe what a repair would lose and keep; None for a group that is not quarantined.

    Raises Refused for a group that does not exist, and AdminError.
    """
    for config in await admin.describe_group_config(group_id, (REPAIR,)):
        if config.name == REPAIR:
            return msgspec.json.decode(config.value or "", type=GroupDamage)
    await admin.check_is_muster(group_id)
    await admin.describe_group(group_id)
    return None


async def repair_group(admin: GroupAdmin, group_id: str) -> None:
    """Recreate the group from its readable records. Raises AdminError; Refused if it is not quarantined."""
    await admin.alter_group_config(group_id, {REPAIR: ANEW})
