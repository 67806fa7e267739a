"""The configs of one group (Kafka's GROUP resource): names, types, defaults, limits.

This module defines them in a table, and parses single values. The rules that read a config document its effect;
`alter_configs.py` changes a group's configs, all or none.

Most names begin with `members.` so that they never clash with Kafka's; `target.group.size` is the name in KIP-345's
drafts. The value of a list is what is still outstanding: an instance that has joined is no longer registered.
"""

from collections.abc import Mapping
from enum import IntEnum, unique

import msgspec

from muster.coordinator.group.settings import INT32_MAX
from muster.durations import written
from muster.events.state import GroupConfig

DAY_MS = 86_400_000
DIGITS_MAX = 20
DEFAULT_WAIT_MS = 300_000
"""The default timeout of registrations and retirements."""

LIST_LENGTH_MAX = 30_000
"""The limit of a list in characters, so that it fits every version of DescribeConfigs: strings have 32,767 bytes."""

TARGET_GROUP_SIZE = "target.group.size"
EXPANSION_DELAY = "members.expansion.delay.ms"
LEARNER_TIMEOUT = "members.learner.timeout.ms"
LEARNERS = "members.learners"
REGISTERED = "members.registered"
REGISTRATION_TIMEOUT = "members.registration.timeout.ms"
RETIRED = "members.retired"
RETIREMENT_TIMEOUT = "members.retirement.timeout.ms"
REBALANCE = "members.rebalance"
COORDINATOR = "members.coordinator"
UNASSIGNED_DELAY = "members.unassigned.rebalance.delay.ms"
COORDINATOR_TIMEOUT = "members.coordinator.timeout.ms"
"""The timeout of a move; only accepted together with COORDINATOR, never stored, and so not in the table."""
MOVE = "members.move"
"""Read only, like MEMBERS: the progress of the group's move to or from the cluster upstream."""
REPAIR = "members.repair"
"""Setting this to ANEW repairs a quarantined group; describing it returns the damage. Never stored."""
ANEW = "anew"
MEMBERS = "members"
"""Read only, and described only when a request names it."""


MUSTER, UPSTREAM = "muster", "upstream"
"""The values of COORDINATOR; only UPSTREAM is ever stored."""
NOT_FOR_GROUP = "this Muster does not handle groups of that name (--groups)"
"""The message of a sidecar that may not own the group."""


@unique
class ConfigType(IntEnum):
    """The config types of DescribeConfigs that are used here."""

    STRING = 2
    INT = 3
    LIST = 7


class GroupConfigDef(msgspec.Struct, frozen=True, kw_only=True):
    """One config. `field`: where `GroupConfig` stores it; lists and verbs have none. A default of "" means off.

    `format_level`: the lowest level of a log that can store it.
    """

    name: str
    type: ConfigType
    default: str
    documentation: str
    field: str | None = None
    minimum: int = 0
    maximum: int = INT32_MAX
    format_level: int = 0


_ALL = (
    GroupConfigDef(
        name=TARGET_GROUP_SIZE,
        type=ConfigType.INT,
        default="",
        field="target_group_size",
        minimum=1,
        documentation="The number of active members; the others are standbys, without partitions, until one is lost.",
    ),
    GroupConfigDef(
        name=EXPANSION_DELAY,
        type=ConfigType.INT,
        default="0",
        field="expansion_delay_ms",
        maximum=DAY_MS,
        documentation="How long joins of new members to a stable group are gathered before one rebalance, ms. 0: "
        "not at all.",
    ),
    GroupConfigDef(
        name=LEARNER_TIMEOUT,
        type=ConfigType.INT,
        default="",
        field="learner_timeout_ms",
        minimum=1,
        maximum=DAY_MS,
        documentation="How long new members of a stable group are learners, without partitions, ms; then all of "
        "them are promoted in one rebalance.",
    ),
    GroupConfigDef(
        name=LEARNERS,
        type=ConfigType.LIST,
        default="",
        documentation="The learners, by instance id or member id. Subtract one to promote it now.",
    ),
    GroupConfigDef(
        name=REGISTERED,
        type=ConfigType.LIST,
        default="",
        documentation="Instance ids that will join (KIP-469): one rebalance after the last one has joined. "
        "Subtract one to withdraw it.",
    ),
    GroupConfigDef(
        name=REGISTRATION_TIMEOUT,
        type=ConfigType.INT,
        default=str(DEFAULT_WAIT_MS),
        field="registration_timeout_ms",
        minimum=1,
        maximum=DAY_MS,
        documentation="How long the group waits for registered instances, ms; then one rebalance with those that "
        "joined.",
    ),
    GroupConfigDef(
        name=RETIRED,
        type=ConfigType.LIST,
        default="",
        documentation="Members that will leave, by instance id or member id: one rebalance after the last one has "
        "left. Subtract one to keep it.",
    ),
    GroupConfigDef(
        name=RETIREMENT_TIMEOUT,
        type=ConfigType.INT,
        default=str(DEFAULT_WAIT_MS),
        field="retirement_timeout_ms",
        minimum=1,
        maximum=DAY_MS,
        documentation="How long the group waits for retired members to leave, ms; then they are removed, in one "
        "rebalance.",
    ),
    GroupConfigDef(
        name=REBALANCE,
        type=ConfigType.STRING,
        default="",
        documentation="Set to `static` to rebalance a stable group of static members now, to `force` if it has "
        "dynamic ones. Never stored.",
    ),
    GroupConfigDef(
        name=COORDINATOR,
        type=ConfigType.STRING,
        default=MUSTER,
        field="coordinator",
        documentation="In a sidecar: `upstream` releases the group to the upstream cluster, for good; `muster` "
        "adopts a group from it whose members are connected here.",
    ),
    GroupConfigDef(
        name=UNASSIGNED_DELAY,
        type=ConfigType.INT,
        default="0",
        field="unassigned_rebalance_delay_ms",
        maximum=DAY_MS,
        format_level=7,
        documentation="How long partitions of subscribed topics may stay unassigned in a stable group, ms; then "
        "Muster asks it to rebalance, once. 0: never.",
    ),
)

GROUP_CONFIGS: Mapping[str, GroupConfigDef] = {definition.name: definition for definition in _ALL}
"""The configs by name, in the order in which they are listed."""


class BadConfig(ValueError):
    """A value is invalid; the text names the config, the value and the limits."""


def number(definition: GroupConfigDef, text: str) -> int:
    """Parse the value of an INT config. Raises BadConfig."""
    limits = f"a whole number from {definition.minimum} to {definition.maximum}"
    if definition.name.endswith(".ms"):
        limits += f" ({written(definition.maximum)})"
    digits = text.strip()
    shown = f"{digits[:DIGITS_MAX]}..." if len(digits) > DIGITS_MAX else digits
    if not (digits.isascii() and digits.removeprefix("-").isdecimal()) or len(digits) > DIGITS_MAX:
        raise BadConfig(f"{definition.name}={shown}: should be {limits}")
    value = int(digits)
    if not definition.minimum <= value <= definition.maximum:
        raise BadConfig(f"{definition.name}={shown}: should be {limits}")
    return value


def coordinator(text: str | None) -> str | None:
    """Parse the value of COORDINATOR, as it is stored. Raises BadConfig."""
    if text in (None, MUSTER):
        return None
    if text != UPSTREAM:
        shown = f"{text[:DIGITS_MAX]}..." if len(text) > DIGITS_MAX else text
        raise BadConfig(f"{COORDINATOR}={shown}: should be '{MUSTER}' or '{UPSTREAM}'")
    return UPSTREAM


def values_set(config: GroupConfig) -> dict[str, str]:
    """Return the values that are set, by config name."""
    fields = ((each.name, each.field) for each in _ALL)
    values = ((name, getattr(config, field)) for name, field in fields if field is not None)
    return {name: str(value) for name, value in values if value is not None}


def registration_timeout_ms(config: GroupConfig) -> int:
    """Return the group's own timeout, or the default."""
    return DEFAULT_WAIT_MS if config.registration_timeout_ms is None else config.registration_timeout_ms


def retirement_timeout_ms(config: GroupConfig) -> int:
    """Return the group's own timeout, or the default."""
    return DEFAULT_WAIT_MS if config.retirement_timeout_ms is None else config.retirement_timeout_ms
