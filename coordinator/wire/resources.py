"""Config resources, by type and name, for IncrementalAlterConfigs and DescribeConfigs.

Only groups have configs here. Other resources are declared at startup or do not exist; their types are listed so that
refusals can name them.
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
    """Format a resource for messages: `topic 'orders'`, `client metrics 'all'`, `resource type 9 'x'`."""
    kind = _NAMES.get(resource.resource_type, f"resource type {resource.resource_type}")
    return f"{kind} {resource.resource_name!r}"


_NAMES = {each.value: each.name.lower().replace("_", " ") for each in ResourceType}
