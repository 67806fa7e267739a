"""IncrementalAlterConfigs (key 44). v1 is flexible (KIP-339).

Each resource is answered separately: either all of its changes apply or none. Requests that are invalid for any group
are refused here, in Kafka's words: a resource named twice, a missing value, an unknown operation. The rules decide the
rest. The configs of all other resources are fixed at startup, so they cannot be altered.
"""

from collections import Counter

from kio.schema.errors import ErrorCode

from muster.coordinator.group.commands import AlterGroupConfig, Caller, ConfigChange, ConfigOperation
from muster.coordinator.group.configs import COORDINATOR
from muster.coordinator.group.outcomes import AlterGroupConfigOutcome, Outcome
from muster.coordinator.service import Cancel, ReplyTo, Service
from muster.coordinator.wire.api import Answer, Api, Body, Fields, RequestContext
from muster.coordinator.wire.gather import Gather
from muster.coordinator.wire.resources import ResourceType, named
from muster.events.steps import Steps, entries_of

_NO_CLUSTER = (
    f"{COORDINATOR}: there is no upstream cluster to move a group to or from; this Muster runs standalone (muster "
    "serve --upstream)"
)
CHANGES_MAX = 1_000
"""The limit of changes to one resource: more than there are configs, each of which may be changed once."""

_OPERATIONS = frozenset(each.value for each in ConfigOperation)


def handle(body: Body, context: RequestContext, service: Service, answer: Answer) -> Cancel | None:
    gathered = Gather[Fields](len(body.resources), lambda responses: answer({"responses": responses}))
    times = Counter((resource.resource_type, resource.resource_name) for resource in body.resources)

    def reply_to(place: int, resource: Body) -> ReplyTo:
        def reply(outcome: Outcome) -> None:
            assert isinstance(outcome, AlterGroupConfigOutcome)
            gathered.put(place, encode(resource, outcome.error, outcome.message))

        return reply

    def take(place: int, resource: Body) -> None:
        refused = refusal(resource)
        if times[resource.resource_type, resource.resource_name] > 1:
            refused = "Each resource must appear at most once."
        if refused is None and any(change.name == COORDINATOR for change in resource.configs):
            gathered.put(place, encode(resource, ErrorCode.invalid_config, _NO_CLUSTER))
        elif refused is not None:
            gathered.put(place, encode(resource, ErrorCode.invalid_request, refused))
        else:
            command = decode(resource, context.caller(service), validate_only=body.validate_only)
            service.groups.submit(command, reply_to(place, resource))

    def submit() -> Steps[None]:
        for place, resource in enumerate(body.resources):
            take(place, resource)
            yield entries_of(resource.resource_name) + len(resource.configs)

    return context.work(submit())


def refusal(resource: Body) -> str | None:
    """Return the error message for a resource that is refused here; None if the rules decide."""
    if len(resource.configs) > CHANGES_MAX:
        return f"{len(resource.configs)} changes of one resource; the limit is {CHANGES_MAX}."
    if resource.resource_type != ResourceType.GROUP:
        return f"The configs of {named(resource)} cannot be altered here, only those of groups."
    if not resource.resource_name:
        return "Default group resources are not allowed."
    for change in resource.configs:
        if change.config_operation not in _OPERATIONS:
            return f"Unknown operations type {change.config_operation}"
    nulls = [each.name for each in resource.configs if each.value is None and not _deletes(each)]
    return f"Null value not supported for : {', '.join(nulls)}" if nulls else None


def _deletes(change: Body) -> bool:
    return bool(change.config_operation == ConfigOperation.DELETE)


def decode(resource: Body, caller: Caller, *, validate_only: bool) -> AlterGroupConfig:
    """Decode the command. The value of a config that is deleted (Java sends an empty one) is ignored."""
    return AlterGroupConfig(
        caller=caller,
        group_id=resource.resource_name,
        changes=tuple(
            ConfigChange(
                name=each.name,
                operation=ConfigOperation(each.config_operation),
                value=None if _deletes(each) else each.value,
            )
            for each in resource.configs
        ),
        validate_only=validate_only,
    )


def encode(resource: Body, error: ErrorCode, message: str | None) -> Fields:
    return {
        "error_code": error,
        "error_message": message,
        "resource_type": resource.resource_type,
        "resource_name": resource.resource_name,
    }


API = Api(key=44, name="IncrementalAlterConfigs", versions=range(2), handle=handle)
