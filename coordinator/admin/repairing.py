"""Repairing a quarantined group: what would be lost, and doing it. `muster groups repair` is a skin over these."""

import msgspec

from muster.coordinator.admin import GroupAdmin
from muster.coordinator.group.configs import ANEW, REPAIR
from muster.coordinator.group.outcomes import GroupDamage


async def damage_of(admin: GroupAdmin, group_id: str) -> GroupDamage | None:
    """What a repair would lose and keep; None for a group that is not quarantined.

    Raises Refused for a group that does not exist, and AdminError.
    """
    for setting in await admin.describe_group_config(group_id, (REPAIR,)):
        if setting.name == REPAIR:
            return msgspec.json.decode(setting.value or "", type=GroupDamage)
    await admin.describe_group(group_id)
    return None


async def repair_group(admin: GroupAdmin, group_id: str) -> None:
    """Have the group made anew from what of it can be read. Raises AdminError; Refused if it is not quarantined."""
    await admin.alter_group_config(group_id, {REPAIR: ANEW})
