"""What IncrementalAlterConfigs and DescribeConfigs are about: resources, by type and name.

Only a group has settings that are kept here. The rest of what a cluster has is declared when it starts, or does not
exist; it is named all the same, so that a refusal can say what was asked for.
"""

from enum import IntEnum, unique

from muster.coordinator.wire.api import Body


@unique
class ResourceType(IntEnum):
    """Kafka's ConfigResource.Type, by its numbers."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


def named(resource: Body) -> str:
    """A resource for people: `topic 'orders'`, `client metrics 'all'`, `resource type 9 'x'`."""
    kind = _NAMES.get(resource.resource_type, f"resource type {resource.resource_type}")
    return f"{kind} {resource.resource_name!r}"


_NAMES = {each.value: each.name.lower().replace("_", " ") for each in ResourceType}
