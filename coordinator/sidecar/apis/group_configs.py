"""DescribeConfigs and IncrementalAlterConfigs (keys 32 and 44) for groups: Kafka's configs upstream, Muster's here.

A group is one resource with the configs of both. To describe it, the broker gets the client's request, and Muster's
configs are added to those that the client may see; the broker skips names that it does not know. To alter it, the
configs are split by name. The broker validates its part first, so it authorizes the client (ALTER_CONFIGS) and refuses
an invalid resource. Then Muster's part is altered. If a resource has configs of both, Muster's are validated, the
broker's altered, and Muster's altered last: all of a resource or nothing, unless another client alters it in the
meantime.

Muster's configs decide which members take part in the group, so besides ALTER_CONFIGS or DESCRIBE_CONFIGS they need
READ on it; `members`, which lists the members, needs DESCRIBE. The broker decides both.

A request without Muster's configs is relayed unchanged.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import msgspec
from kio.schema.errors import ErrorCode

from muster.coordinator.group.commands import DescribeGroupConfig
from muster.coordinator.group.configs import COORDINATOR, GROUP_CONFIGS, MEMBERS, MOVE
from muster.coordinator.group.outcomes import AlterGroupConfigOutcome, DescribeGroupConfigOutcome
from muster.coordinator.load.slices import Pace
from muster.coordinator.service import Cancel, Service
from muster.coordinator.sidecar.apis.merging import as_fields, ask_broker, ask_rules
from muster.coordinator.sidecar.groups.routing import GroupRouter
from muster.coordinator.sidecar.relay.intercept import ClientRequest, SidecarApi
from muster.coordinator.wire import describe_configs, incremental_alter_configs
from muster.coordinator.wire.api import Body, Fields
from muster.coordinator.wire.authorized_operations import DESCRIBE, READ
from muster.coordinator.wire.resources import ResourceType
from muster.events.steps import Each, entries_of

Key = tuple[int, str]
"""A resource's type and name."""


class GroupConfigsApi:
    """Splits and merges group configs. `service` applies the rules to Muster's."""

    def __init__(self, service: Service, router: GroupRouter) -> None:
        self._service = service
        self._router = router

    def apis(self) -> tuple[SidecarApi, ...]:
        """Return the registrations."""
        describe, alter = describe_configs.API, incremental_alter_configs.API
        return (
            SidecarApi(key=describe.key, name=describe.name, versions=describe.versions, handle=self.describe),
            SidecarApi(key=alter.key, name=alter.name, versions=alter.versions, handle=self.alter),
        )

    # ---- describing ----------------------------------------------------------------------------------

    def describe(self, request: ClientRequest) -> Cancel | None:
        """Handle DescribeConfigs."""
        return request.work(self._describe(request))

    async def _describe(self, request: ClientRequest) -> None:
        pace = request.pace()
        ours: dict[Key, Body] = {}
        for resource in request.body.resources:
            if self._may_be_ours(resource) and _names_ours(resource.configuration_keys):
                ours.setdefault(key_of(resource), resource)
            await pace.worked(entries_of(resource.resource_name))
        if not ours:
            request.relay()
            return
        answer = await ask_broker(request)
        results = []
        for result in answer.results:  # a resource named twice is described once: it may have many members
            results.append(await self._with_ours(request, ours.pop(key_of(result), None), result))
            await pace.worked()
        request.answer({**as_fields(replace(answer, results=())), "results": results})

    async def _with_ours(self, request: ClientRequest, resource: Body | None, result: Body) -> Fields:
        if resource is None or result.error_code is not ErrorCode.none:
            return as_fields(result)
        if not {MEMBERS, MOVE}.isdisjoint(resource.configuration_keys or ()):
            refused = await request.client.authorizations.refusal_at_any_broker(resource.resource_name, DESCRIBE)
            if refused is not ErrorCode.none:
                message = f"{MEMBERS} and {MOVE} name the group's members, so they need DESCRIBE on it"
                return {**as_fields(result), "error_code": refused, "error_message": message, "configs": []}
        caller = request.context.caller(self._service)
        outcome = await ask_rules(self._service, DescribeGroupConfig(caller=caller, group_id=resource.resource_name))
        assert isinstance(outcome, DescribeGroupConfigOutcome)
        ours = describe_configs.encode_group(resource, outcome, request.body, request.context.api_version)
        if ours["error_code"]:
            return ours
        fields = as_fields(result)
        return {**fields, "configs": [*fields["configs"], *ours["configs"]]}

    # ---- altering ------------------------------------------------------------------------------------

    def alter(self, request: ClientRequest) -> Cancel | None:
        """Handle IncrementalAlterConfigs."""
        return request.work(self._alter(request))

    async def _alter(self, request: ClientRequest) -> None:
        pace, body = request.pace(), request.body
        parts: list[_Part] = []
        others: list[Body] = []
        for resource in body.resources:
            if self._has_ours(resource):
                parts.append(_Part.of(resource))
            else:
                others.append(resource)
            await pace.worked(entries_of(resource.resource_name) + len(resource.configs))
        if not parts:
            request.relay()
            return
        asked = replace(body, resources=tuple(part.theirs for part in parts), validate_only=True)
        results = await _results(await ask_broker(request, asked), pace)
        for part in parts:
            await pace.worked()
            if not results[part.key]["error_code"]:
                refused = await request.client.authorizations.refusal_at_any_broker(part.ours.resource_name, READ)
                if refused is not ErrorCode.none:
                    message = "Muster's own configs of a group need READ on it, in addition to ALTER_CONFIGS"
                    results[part.key] = incremental_alter_configs.encode(part.ours, refused, message)
                    continue
                only_try = body.validate_only or part.is_mixed
                results[part.key] = await self._alter_ours(request, part, validate_only=only_try)
        mixed = [part for part in parts if part.is_mixed and not results[part.key]["error_code"]]
        rest = (*others, *(part.theirs for part in mixed))
        if rest:
            results |= await _results(await ask_broker(request, replace(body, resources=rest)), pace)
        for part in mixed:
            await pace.worked()
            if not results[part.key]["error_code"] and not body.validate_only:
                results[part.key] = await self._alter_ours(request, part, validate_only=False)
        request.answer({"responses": Each(lambda resource: results[key_of(resource)], body.resources)})

    async def _alter_ours(self, request: ClientRequest, part: "_Part", *, validate_only: bool) -> Fields:
        refused = incremental_alter_configs.refusal(part.ours)
        if refused is not None:
            return incremental_alter_configs.encode(part.ours, ErrorCode.invalid_request, refused)
        caller = request.context.caller(self._service)
        command = incremental_alter_configs.decode(part.ours, caller, validate_only=validate_only)
        outcome = await ask_rules(self._service, command)
        assert isinstance(outcome, AlterGroupConfigOutcome)
        return incremental_alter_configs.encode(part.ours, outcome.error, outcome.message)

    def _has_ours(self, resource: Body) -> bool:
        names_ours = self._may_be_ours(resource) and any(is_ours(change.name) for change in resource.configs)
        return names_ours or _sets_coordinator(resource)

    def _may_be_ours(self, resource: Body) -> bool:
        return resource.resource_type == ResourceType.GROUP and self._router.may_be_ours(resource.resource_name)


class _Part(msgspec.Struct, frozen=True):
    """A resource with configs of Muster's, split into Muster's and the broker's, of which there may be none."""

    ours: Any
    theirs: Any

    @classmethod
    def of(cls, resource: Body) -> "_Part":
        ours = tuple(change for change in resource.configs if is_ours(change.name))
        theirs = tuple(change for change in resource.configs if not is_ours(change.name))
        return cls(replace(resource, configs=ours), replace(resource, configs=theirs))

    @property
    def key(self) -> Key:
        return key_of(self.ours)

    @property
    def is_mixed(self) -> bool:
        return bool(self.theirs.configs)


def is_ours(name: str) -> bool:
    """Return whether a config is Muster's: a known one, or one with a name like theirs."""
    return name in GROUP_CONFIGS or name == MEMBERS or name.startswith(f"{MEMBERS}.")


def _sets_coordinator(resource: Body) -> bool:
    """Return whether it sets members.coordinator, which is refused here for groups outside this sidecar's patterns."""
    is_group = resource.resource_type == ResourceType.GROUP
    return is_group and any(change.name == COORDINATOR for change in resource.configs)


def key_of(resource: Body) -> Key:
    """Return the key of a resource, or of its result."""
    return int(resource.resource_type), resource.resource_name


def _names_ours(names: Iterable[str] | None) -> bool:
    return not names or any(map(is_ours, names))


async def _results(answer: Body, pace: Pace) -> dict[Key, Fields]:
    results = {}
    for result in answer.responses:
        results[key_of(result)] = as_fields(result)
        await pace.worked()
    return results
