"""How many joins and syncs of one may wait at a time, so that nobody's leave no room for others'.

What belongs here: a layer before the groups that counts those that are not answered yet, by principal, or by group
where clients do not authenticate. Who is over the limit is told what is told while a group is being read: all clients
ask again. What it must not know: what becomes of a request behind it.
"""

from collections.abc import Collection, Mapping

import structlog
from kio.schema.errors import ErrorCode

from coordinator.group.commands import AnyRequest, Heartbeat, JoinGroup, SyncGroup
from coordinator.group.outcomes import Outcome
from coordinator.metrics import ServerMetrics
from coordinator.not_served import quarantine_reply
from coordinator.quotas import Quota
from coordinator.service import CommittedOffset, Groups, HeartbeatTicket, ListedGroup, ReplyTo
from coordinator.sidecar.sasl import ANONYMOUS, NOT_KNOWN
from events.ids import GroupId, MemberId

log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)

_Place = tuple[type[JoinGroup | SyncGroup], GroupId, MemberId]
"""One join and one sync of each member wait. One that is repeated takes the former's place, which is not answered any
more (J13, SG17)."""


class WaitingLimit(Groups):
    """See the module."""

    def __init__(self, groups: Groups, *, each_max: int, metrics: ServerMetrics) -> None:
        self._groups = groups
        self._metrics = metrics
        self._quota = Quota[str](each_max, _tell_full)
        self._waiting: dict[_Place, tuple[int, str]] = {}  # the request's id, and whose it is

    def submit(self, command: AnyRequest, reply: ReplyTo) -> None:
        if isinstance(command, JoinGroup | SyncGroup):
            self._submit(command, reply)
        else:
            self._groups.submit(command, reply)

    def _submit(self, command: JoinGroup | SyncGroup, reply: ReplyTo) -> None:
        place, request_id, whose = _place(command), command.caller.request_id, _whose(command)
        self._leave(place)
        if not self._quota.take(whose):
            self._metrics.waiting_refused += 1
            (refused,) = quarantine_reply(command)
            reply(refused.outcome)
            return
        self._waiting[place] = (request_id, whose)

        def answered(outcome: Outcome) -> None:
            if self._waiting.get(place, (-1, ""))[0] == request_id:
                self._leave(place)
            reply(outcome)

        self._groups.submit(command, answered)

    def _leave(self, place: _Place) -> None:
        waited = self._waiting.pop(place, None)
        if waited is not None:
            self._quota.give_back(waited[1])

    def heartbeat_ticket(self, command: Heartbeat) -> HeartbeatTicket | None:
        return self._groups.heartbeat_ticket(command)

    def list_groups(self) -> Collection[ListedGroup] | ErrorCode:
        return self._groups.list_groups()

    def committed_offsets(self, group_id: GroupId) -> Mapping[tuple[str, int], CommittedOffset] | ErrorCode:
        return self._groups.committed_offsets(group_id)


def _tell_full(whose: str) -> None:
    log.warning("joins and syncs are told to try again: as many wait as --waiting-per-principal allows", whose=whose)


def _place(command: JoinGroup | SyncGroup) -> _Place:
    if isinstance(command, JoinGroup):
        return JoinGroup, command.group_id, command.member_id or command.proposed_member_id
    return SyncGroup, command.group_id, command.member_id


def _whose(command: JoinGroup | SyncGroup) -> str:
    principal = command.caller.principal
    return f"group {command.group_id}" if principal in {ANONYMOUS, NOT_KNOWN} else principal
