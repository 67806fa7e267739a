"""ListGroups (key 16): the broker's list, with Muster's own view of its groups.

The state that upstream lists is the shadow's, so the broker is asked for all states, and they are filtered here. So are
types: a group that is of another type upstream must not be taken for one that no broker lists. Muster's groups are
classic: if only other types are requested, the request is relayed.

A group that no broker lists is added: an Empty one that has only configs, or one whose shadow is joining. Only the
broker that coordinates it adds it, if the client may DESCRIBE it, so that the cluster lists it once. DescribeGroups on
the client's connection answers both questions: other brokers return NOT_COORDINATOR.
"""

from collections.abc import Mapping
from dataclasses import replace

from kio.schema.errors import ErrorCode

from muster.coordinator.peers.link.peer_messages import OwnedGroup
from muster.coordinator.service import Cancel
from muster.coordinator.sidecar.apis.merging import as_fields, ask_broker, describe_upstream, refusal
from muster.coordinator.sidecar.groups.owned_groups import ListOwned
from muster.coordinator.sidecar.groups.routing import GroupRouter
from muster.coordinator.sidecar.relay.intercept import ClientRequest, SidecarApi
from muster.coordinator.upstream.shadow import PROTOCOL_TYPE
from muster.coordinator.wire import list_groups
from muster.coordinator.wire.api import Body, Fields
from muster.coordinator.wire.authorized_operations import DESCRIBE
from muster.events.ids import GroupId
from muster.events.state import GroupState

CLASSIC = "classic"


class ListGroupsApi:
    """Merges the lists. `list_owned` lists the groups of all processes of the event log."""

    def __init__(self, router: GroupRouter, list_owned: ListOwned) -> None:
        self._router = router
        self._list_owned = list_owned

    def api(self) -> SidecarApi:
        """Return the registration."""
        api = list_groups.API
        return SidecarApi(key=api.key, name=api.name, versions=api.versions, handle=self.handle)

    def handle(self, request: ClientRequest) -> Cancel | None:
        types = _types(request.body)
        if not types or CLASSIC in types:
            return request.work(self._list(request))
        request.relay()
        return None

    async def _list(self, request: ClientRequest) -> None:
        body = request.body
        states = {state.strip().lower() for state in getattr(body, "states_filter", ())}
        types = _types(body)
        unfiltered = {name: () for name, wanted in (("states_filter", states), ("types_filter", types)) if wanted}
        answer = await ask_broker(request, replace(body, **unfiltered) if unfiltered else None)
        known = await self._list_owned()
        if isinstance(known, ErrorCode):
            request.answer({"error_code": known, "groups": []})
            return
        pace = request.pace()
        ours = {}
        for group in known:
            if group.is_owned or self._router.may_be_ours(GroupId(group.group_id)):
                ours[GroupId(group.group_id)] = group
            await pace.worked()
        groups, listed = [], set()
        for group in answer.groups:
            listed.add(group.group_id)
            groups.append(self._line(group, ours))
            await pace.worked()
        groups += [_line_of(each) for each in await self._added(request, ours, listed)]
        if states:
            groups = [each for each in groups if each["group_state"].lower() in states]
        if types:
            groups = [each for each in groups if each["group_type"].lower() in types]
        request.answer({**as_fields(replace(answer, groups=())), "groups": groups})

    def _line(self, listed: Body, ours: Mapping[GroupId, OwnedGroup]) -> Fields:
        is_empty = (
            getattr(listed, "group_state", GroupState.EMPTY.value) == GroupState.EMPTY.value
        )  # the field exists from v4 on
        known = ours.get(listed.group_id)
        is_ours = is_empty or (known is not None and known.has_shadow)  # otherwise it is another service's shadow
        is_shadow = listed.protocol_type == PROTOCOL_TYPE and is_ours
        if known is not None and known.state is not None and (is_shadow or known.is_owned):
            return _line_of(known)
        if is_shadow:
            return {**as_fields(listed), "protocol_type": "", "group_state": GroupState.EMPTY.value}
        return as_fields(listed)

    async def _added(
        self, request: ClientRequest, ours: Mapping[GroupId, OwnedGroup], listed: set[GroupId]
    ) -> list[OwnedGroup]:
        """Return the groups of ours that no broker lists, if this broker coordinates them."""
        missing = [
            group_id
            for group_id, known in ours.items()
            if group_id not in listed and known.state is not None and not known.is_in
        ]
        described = await describe_upstream(request.client, missing)
        return [
            ours[group_id]
            for group_id, description in described.items()
            if refusal(description, DESCRIBE) is ErrorCode.none
        ]


def _types(body: Body) -> set[str]:
    """Return the requested types; none below v5."""
    return {each.lower() for each in getattr(body, "types_filter", ())}


def _line_of(group: OwnedGroup) -> Fields:
    return {
        "group_id": group.group_id,
        "protocol_type": group.protocol_type,
        "group_state": group.state,
        "group_type": CLASSIC,
    }
