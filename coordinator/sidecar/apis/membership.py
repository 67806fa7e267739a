"""JoinGroup, SyncGroup, Heartbeat, LeaveGroup (keys 11, 14, 12, 13): handled if the group is Muster's, else relayed.

The handlers are those of `wire/`, as in standalone mode. Before them, a sidecar routes the group, and asks the broker
whether the client has READ on it (G1).
"""

from collections.abc import Callable

import msgspec
import structlog
from kio.schema.errors import ErrorCode

from muster.coordinator.group.commands import AnyRequest, JoinGroup
from muster.coordinator.group.error_replies import error_replies
from muster.coordinator.not_served import loading_reply
from muster.coordinator.service import Cancel, Groups, ReplyTo, Service
from muster.coordinator.sidecar.groups.moves import Moves
from muster.coordinator.sidecar.groups.routing import GroupRoute, GroupRouter
from muster.coordinator.sidecar.groups.upstream_groups import UpstreamGroups
from muster.coordinator.sidecar.relay.intercept import ClientRequest, SidecarApi
from muster.coordinator.upstream.group_probe import ForeignShadow
from muster.coordinator.upstream.shadows import ShadowUnavailable
from muster.coordinator.wire import heartbeat, join_group, leave_group, sync_group
from muster.coordinator.wire.api import Api, Fields
from muster.coordinator.wire.authorized_operations import READ

log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)


class MembershipApi:
    """Routes and authorizes membership requests. `would_refuse` returns whether the rules would refuse a join."""

    def __init__(
        self,
        service: Service,
        router: GroupRouter,
        moves: Moves,
        would_refuse: Callable[[JoinGroup], bool],
        is_reserved: Callable[[str], bool] = lambda _: False,
        *,
        upstream_groups: UpstreamGroups | None = None,
    ) -> None:
        self._service = service
        self._router = router
        self._moves = moves
        self._would_refuse = would_refuse
        self._is_reserved = is_reserved
        self._upstream_groups = UpstreamGroups(service.monotonic_ms) if upstream_groups is None else upstream_groups

    def apis(self) -> tuple[SidecarApi, ...]:
        """Return the registrations."""
        return tuple(
            SidecarApi(key=api.key, name=api.name, versions=api.versions, handle=self._handler(api))
            for api in (join_group.API, sync_group.API, heartbeat.API, leave_group.API)
        )

    def _handler(self, api: Api) -> Callable[[ClientRequest], Cancel | None]:
        def handle(request: ClientRequest) -> Cancel | None:
            group_id = request.body.group_id
            if self._is_reserved(group_id):
                return self._handle(api, request, ErrorCode.group_authorization_failed)
            route = self._router.route_of(group_id, joins=api is join_group.API)
            if route is GroupRoute.UPSTREAM:
                self._moves.recent_members.relay(request)
                return None
            authorization = request.client.authorizations.cached(group_id, request.context.arrived_ms)
            if route in (GroupRoute.UNDECIDED, GroupRoute.MOVING) or authorization is None:
                return request.work(self._ask_first(api, request, route))
            return self._handle(api, request, route.refusal(authorization.refusal(READ)))

        return handle

    async def _ask_first(self, api: Api, request: ClientRequest, route: GroupRoute) -> None:
        """Ask the broker for the client's authorization before anything happens to the group."""
        group_id = request.body.group_id
        authorization = await request.client.authorizations.of(group_id)
        if authorization.error is not ErrorCode.none:
            request.client.refused_by_broker()
        if route is GroupRoute.LOADING:  # it may be loaded by now
            route = self._router.route_of(group_id, joins=api is join_group.API)
        if route is GroupRoute.UPSTREAM:
            self._moves.recent_members.relay(request)
            return
        refusal = route.refusal(authorization.refusal(READ))
        if refusal is ErrorCode.none and route is GroupRoute.MOVING:
            moved = await self._moves.answer(request)
            if moved is None:
                request.relay()
                return
            refusal = moved
        elif refusal is ErrorCode.none and route is GroupRoute.UNDECIDED:
            try:
                theirs = await self._router.take(group_id, would_fail=lambda: self._would_fail(api, request))
            except ShadowUnavailable as error:
                log.warning("join refused: cannot tell whether the group has members upstream", error=str(error))
                refusal = ErrorCode.coordinator_not_available
            else:
                if isinstance(theirs, ForeignShadow) and api is join_group.API:
                    # The broker would refuse it too. If relayed, it could leave an unused member id upstream, which the
                    # other Muster's shadow would have to wait for (P4, P7).
                    self._upstream_groups.note(group_id, theirs)
                    refusal = ErrorCode.inconsistent_group_protocol
                elif theirs is not None:
                    self._upstream_groups.note(group_id, theirs)
                    request.relay()
                    return
                else:
                    self._upstream_groups.forget(group_id)
        self._handle(api, request, refusal)

    def _would_fail(self, api: Api, request: ClientRequest) -> bool:
        context = request.context
        if api is not join_group.API:
            return True
        return self._would_refuse(join_group.decode(request.body, context, context.caller(self._service), ""))

    def _handle(self, api: Api, request: ClientRequest, refusal: ErrorCode) -> Cancel | None:
        allowed = refusal is ErrorCode.none
        service = self._service if allowed else msgspec.structs.replace(self._service, groups=RefusingGroups(refusal))

        def answer(fields: Fields) -> None:
            if fields.get("error_code") is ErrorCode.unknown_member_id:
                self._moves.note_unknown_member(request)  # the group was released while the request was queued
            request.answer(fields)

        return api.handle(request.body, request.context, service, answer)


class RefusingGroups(Groups):
    """Groups that refuse every command with an error, in the form of the command's response."""

    def __init__(self, error: ErrorCode) -> None:
        self._error = error

    def submit(self, command: AnyRequest, reply: ReplyTo) -> None:
        loading = self._error is ErrorCode.coordinator_load_in_progress  # never returned for a sync (QK8)
        (refused,) = loading_reply(command) if loading else error_replies(command, self._error)
        reply(refused.outcome)

    def heartbeat_ticket(self, _command: object) -> None:
        return None

    def list_groups(self) -> ErrorCode:
        return self._error

    def committed_offsets(self, _group_id: object) -> ErrorCode:
        return self._error
