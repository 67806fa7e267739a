"""DescribeConfigs and IncrementalAlterConfigs (keys 32 and 44) of groups: Kafka's settings upstream, ours here.

A group is one resource with the settings of both. To describe it the broker is asked as the client asked, and what it
lets the client see has ours added: it passes over names that it does not know. A change is split by name. The broker
is asked first whether all of its part could be made, so it says who may (ALTER_CONFIGS), and refuses what is wrong with
the resource. What is ours is made then, unless the resource has settings of both: there ours are tried, the broker's
made, and ours made at last, so that all of a resource are made or none, as long as nobody comes between.

What names nothing of ours is relayed as it came.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import msgspec
from kio.schema.errors import ErrorCode

from coordinator.group.commands import DescribeGroupConfig
from coordinator.group.configs import COORDINATOR, GROUP_CONFIGS, MEMBERS
from coordinator.group.outcomes import AlterGroupConfigOutcome, DescribeGroupConfigOutcome
from coordinator.service import Cancel, Service
from coordinator.sidecar.intercept import Request, SidecarApi
from coordinator.sidecar.merging import as_fields, ask_broker, decided
from coordinator.sidecar.whose import Ownerships
from coordinator.wire import describe_configs, incremental_alter_configs
from coordinator.wire.api import Body, Fields
from coordinator.wire.resources import ResourceType

Key = tuple[int, str]
"""A resource, by type and name."""


class GroupConfigs:
    """`service` is what the rules are asked through."""

    def __init__(self, service: Service, ownerships: Ownerships) -> None:
        self._service = service
        self._ownerships = ownerships

    def apis(self) -> tuple[SidecarApi, ...]:
        """The registrations."""
        describe, alter = describe_configs.API, incremental_alter_configs.API
        return (
            SidecarApi(key=describe.key, name=describe.name, versions=describe.versions, handle=self.describe),
            SidecarApi(key=alter.key, name=alter.name, versions=alter.versions, handle=self.alter),
        )

    # ---- describing ----------------------------------------------------------------------------------

    def describe(self, request: Request) -> Cancel | None:
        """Handle a DescribeConfigs."""
        ours = {
            key_of(resource): resource
            for resource in request.body.resources
            if self._may_be_ours(resource) and _names_ours(resource.configuration_keys)
        }
        if ours:
            return request.work(self._describe(request, ours))
        request.relay()
        return None

    async def _describe(self, request: Request, ours: dict[Key, Body]) -> None:
        answer = await ask_broker(request)
        results = [await self._with_ours(request, ours.get(key_of(told)), told) for told in answer.results]
        request.answer({**as_fields(replace(answer, results=())), "results": results})

    async def _with_ours(self, request: Request, resource: Body | None, told: Body) -> Fields:
        if resource is None or told.error_code is not ErrorCode.none:
            return as_fields(told)
        caller = request.context.caller(self._service)
        outcome = await decided(self._service, DescribeGroupConfig(caller=caller, group_id=resource.resource_name))
        assert isinstance(outcome, DescribeGroupConfigOutcome)
        ours = describe_configs.encode_group(resource, outcome, request.body, request.context.api_version)
        if ours["error_code"]:
            return ours
        fields = as_fields(told)
        return {**fields, "configs": [*fields["configs"], *ours["configs"]]}

    # ---- altering ------------------------------------------------------------------------------------

    def alter(self, request: Request) -> Cancel | None:
        """Handle an IncrementalAlterConfigs."""
        ours = {
            key_of(resource)
            for resource in request.body.resources
            if (self._may_be_ours(resource) and any(is_ours(change.name) for change in resource.configs))
            or _steers(resource)
        }
        if ours:
            return request.work(self._alter(request, ours))
        request.relay()
        return None

    async def _alter(self, request: Request, ours: set[Key]) -> None:
        body = request.body
        parts = [_Part.of(resource) for resource in body.resources if key_of(resource) in ours]
        asked = replace(body, resources=tuple(part.theirs for part in parts), validate_only=True)
        results = _results(await ask_broker(request, asked))
        for part in parts:
            if not results[part.key]["error_code"]:
                only_try = body.validate_only or part.is_mixed
                results[part.key] = await self._alter_ours(request, part, validate_only=only_try)
        mixed = [part for part in parts if part.is_mixed and not results[part.key]["error_code"]]
        others = [resource for resource in body.resources if key_of(resource) not in ours]
        rest = (*others, *(part.theirs for part in mixed))
        if rest:
            results |= _results(await ask_broker(request, replace(body, resources=rest)))
        for part in mixed:
            if not results[part.key]["error_code"] and not body.validate_only:
                results[part.key] = await self._alter_ours(request, part, validate_only=False)
        request.answer({"responses": [results[key_of(resource)] for resource in body.resources]})

    async def _alter_ours(self, request: Request, part: "_Part", *, validate_only: bool) -> Fields:
        refused = incremental_alter_configs.refusal(part.ours)
        if refused is not None:
            return incremental_alter_configs.encode(part.ours, ErrorCode.invalid_request, refused)
        caller = request.context.caller(self._service)
        command = incremental_alter_configs.decode(part.ours, caller, validate_only=validate_only)
        outcome = await decided(self._service, command)
        assert isinstance(outcome, AlterGroupConfigOutcome)
        return incremental_alter_configs.encode(part.ours, outcome.error, outcome.message)

    def _may_be_ours(self, resource: Body) -> bool:
        return resource.resource_type == ResourceType.GROUP and self._ownerships.is_for(resource.resource_name)


class _Part(msgspec.Struct, frozen=True):
    """A resource with settings of ours: them alone, and what is left for the broker, perhaps none."""

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
    """Whether a setting is decided about here: those that there are, and all that are named like them."""
    return name in GROUP_CONFIGS or name == MEMBERS or name.startswith(f"{MEMBERS}.")


def _steers(resource: Body) -> bool:
    """Whether it asks for a move, which is refused in words of ours for groups that this sidecar is not for."""
    is_group = resource.resource_type == ResourceType.GROUP
    return is_group and any(change.name == COORDINATOR for change in resource.configs)


def key_of(resource: Body) -> Key:
    """Of a resource, or of the answer to it."""
    return int(resource.resource_type), resource.resource_name


def _names_ours(names: Iterable[str] | None) -> bool:
    return not names or any(map(is_ours, names))


def _results(answer: Body) -> dict[Key, Fields]:
    return {key_of(told): as_fields(told) for told in answer.responses}
