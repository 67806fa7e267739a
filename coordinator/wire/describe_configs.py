"""DescribeConfigs (key 32), v1 to v4; Kafka 4.0 removed v0.

v1 adds synonyms, and the source of a value (KIP-226). v3 adds types and documentation (KIP-569). v4 is flexible.

A group has the configs of the table `GROUP_CONFIGS`, each with its value or the default, whether the group exists or
not, as in Kafka. `members` is read only, and described only when a request names it: a JSON array with an object for
each member and each expected instance. The same applies to `members.move` in a sidecar (`outcomes.GroupMove`); a
quarantined group has nothing but `members.repair` (`outcomes.GroupDamage`). A declared topic and this node have no
configs; describing them is no error, since Kafka's tools do so. A resource that is named twice with the same keys is
answered once, and is refused if the keys differ: the list of a group's members may be a thousand times as long as its
name.
"""

import msgspec
from kio.schema.errors import ErrorCode

from muster.coordinator.cluster import Cluster
from muster.coordinator.group.commands import DescribeGroupConfig
from muster.coordinator.group.configs import GROUP_CONFIGS, MEMBERS, MOVE, REPAIR, ConfigType, GroupConfigDef
from muster.coordinator.group.outcomes import DescribeGroupConfigOutcome, Outcome
from muster.coordinator.service import Cancel, ReplyTo, Service
from muster.coordinator.topics import is_topic_name
from muster.coordinator.wire.api import Answer, Api, Body, Fields, RequestContext
from muster.coordinator.wire.gather import Gather
from muster.coordinator.wire.resources import ResourceType, named
from muster.events.steps import Steps, entries_of

DEFAULT_CONFIG, DYNAMIC_GROUP_CONFIG = 5, 8
"""Kafka's codes of ConfigSource."""

_LEGACY_MAX = 32_767
"""The longest string below v4, in bytes: enough for every list, but not for the members of a large group."""

_TWICE = "Each resource must appear at most once."
_MEMBERS_DOCUMENTATION = "The group's members and its expected instances, as JSON."
_REPAIR_DOCUMENTATION = "What a repair of the quarantined group would lose and keep, as JSON."
_MOVE_DOCUMENTATION = "The progress of the group's move to or from the upstream cluster, as JSON."


class Included(msgspec.Struct, frozen=True, kw_only=True):
    """The optional parts of each entry."""

    synonyms: bool
    documentation: bool


def handle(body: Body, context: RequestContext, service: Service, answer: Answer) -> Cancel | None:
    resources = tuple(dict.fromkeys(body.resources))
    gathered = Gather[Fields](len(resources), lambda results: answer({"results": results}))

    def reply_to(place: int, resource: Body) -> ReplyTo:
        def reply(outcome: Outcome) -> None:
            assert isinstance(outcome, DescribeGroupConfigOutcome)
            gathered.put(place, encode_group(resource, outcome, body, context.api_version))

        return reply

    def submit() -> Steps[None]:
        first: dict[tuple[int, str], Body] = {}
        for place, resource in enumerate(resources):
            if first.setdefault((resource.resource_type, resource.resource_name), resource) is not resource:
                gathered.put(place, encode(resource, ErrorCode.invalid_request, _TWICE))
            elif resource.resource_type == ResourceType.GROUP and resource.resource_name:
                command = DescribeGroupConfig(caller=context.caller(service), group_id=resource.resource_name)
                service.groups.submit(command, reply_to(place, resource))
            else:
                gathered.put(place, encode(resource, *_without_group(resource, service.cluster)))
            yield entries_of(resource.resource_name)

    return context.work(submit())


def encode_group(resource: Body, outcome: DescribeGroupConfigOutcome, body: Body, api_version: int) -> Fields:
    """Encode the result for one group."""
    included = Included(synonyms=body.include_synonyms, documentation=getattr(body, "include_documentation", False))
    if outcome.damage is not None and REPAIR in (resource.configuration_keys or ()):
        entry = _entry_by_name(REPAIR, outcome.damage, _REPAIR_DOCUMENTATION, included)
        return encode(resource, ErrorCode.none, entries=(entry,))
    entries = () if outcome.error else _entries(outcome, resource.configuration_keys, included)
    if api_version < 4 and any(len((each["value"] or "").encode()) > _LEGACY_MAX for each in entries):
        text = "a value is too long for this version; ask with DescribeConfigs v4"
        return encode(resource, ErrorCode.invalid_request, text)
    return encode(resource, outcome.error, entries=entries)


def _without_group(resource: Body, cluster: Cluster) -> tuple[ErrorCode, str | None]:
    """Return the error of a resource that is not a group, and its message, as in Kafka."""
    name = resource.resource_name
    match resource.resource_type:
        case ResourceType.GROUP:
            return ErrorCode.invalid_request, "Group name must not be empty"
        case ResourceType.TOPIC if name in cluster.topics:
            return ErrorCode.none, None
        case ResourceType.TOPIC if is_topic_name(name):
            return ErrorCode.unknown_topic_or_partition, None
        case ResourceType.TOPIC:
            return ErrorCode.invalid_topic_exception, f"{name!r} is not a topic name"
        case ResourceType.BROKER if name in {"", str(cluster.node.node_id)}:
            return ErrorCode.none, None
        case ResourceType.BROKER:
            expected = f"expected {cluster.node.node_id} or empty string, but received {name}"
            return ErrorCode.invalid_request, f"Unexpected broker id, {expected}"
        case _:
            return ErrorCode.invalid_request, f"The configs of {named(resource)} cannot be described here."


def _entries(
    outcome: DescribeGroupConfigOutcome, keys: tuple[str, ...] | None, included: Included
) -> tuple[Fields, ...]:
    """Encode the configs with these keys, or all without keys; unknown keys are skipped, as in Kafka."""
    names = GROUP_CONFIGS if not keys else [name for name in GROUP_CONFIGS if name in keys]
    entries = [_entry(GROUP_CONFIGS[name], outcome.values.get(name), included) for name in names]
    if keys and MEMBERS in keys:
        entries.append(_entry_by_name(MEMBERS, outcome.members, _MEMBERS_DOCUMENTATION, included))
    if keys and MOVE in keys and outcome.move is not None:
        entries.append(_entry_by_name(MOVE, outcome.move, _MOVE_DOCUMENTATION, included))
    return tuple(entries)


def _entry(definition: GroupConfigDef, value: str | None, included: Included) -> Fields:
    # A number that is off has no value; an empty list has no elements.
    default = None if definition.type is ConfigType.INT and not definition.default else definition.default
    values = [(DEFAULT_CONFIG, default)] if default is not None or value is None else []
    if value is not None:
        values.insert(0, (DYNAMIC_GROUP_CONFIG, value))
    source, effective = values[0]
    synonyms = [{"name": definition.name, "value": each, "source": where} for where, each in values]
    return {
        "name": definition.name,
        "value": effective,
        "read_only": False,
        "config_source": source,
        "is_sensitive": False,
        "synonyms": synonyms if included.synonyms else (),
        "config_type": definition.type,
        "documentation": definition.documentation if included.documentation else None,
    }


def _entry_by_name(name: str, value: object, documentation: str, included: Included) -> Fields:
    return {
        "name": name,
        "value": msgspec.json.encode(value).decode(),
        "read_only": True,
        "config_source": DYNAMIC_GROUP_CONFIG,
        "is_sensitive": False,
        "synonyms": (),
        "config_type": ConfigType.STRING,
        "documentation": documentation if included.documentation else None,
    }


def encode(resource: Body, error: ErrorCode, message: str | None = None, entries: tuple[Fields, ...] = ()) -> Fields:
    return {
        "error_code": error,
        "error_message": message,
        "resource_type": resource.resource_type,
        "resource_name": resource.resource_name,
        "configs": entries,
    }


API = Api(key=32, name="DescribeConfigs", versions=range(1, 5), handle=handle)
