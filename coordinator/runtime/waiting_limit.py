"""How many joins and syncs of one may wait at a time, so that nobody's leave no room for others'.

What belongs here: a layer before the groups that counts those that are not answered yet, by principal, or by group
where clients do not authenticate. Who is over the limit is told what is told while a group is being read: all clients
ask again. Members of the group count, and are never told so: theirs may be the join that ends the rebalance which all
others wait for, and a group parks but one join and one sync of each. What it must not know: what becomes of a request
behind it.
"""

from collections.abc import Callable, Collection, Mapping

import structlog
from kio.schema.errors import ErrorCode

from muster.coordinator.group.commands import AnyRequest, Heartbeat, JoinGroup, SyncGroup
from muster.coordinator.group.outcomes import Outcome
from muster.coordinator.load.quotas import Quota
from muster.coordinator.not_served import quarantine_reply
from muster.coordinator.observability.metrics import ServerMetrics
from muster.coordinator.principals import ANONYMOUS, NOT_KNOWN
from muster.coordinator.service import CommittedOffset, Groups, HeartbeatTicket, ListedGroup, ReplyTo
from muster.events.ids import GroupId

log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)


class Places:
    """Those that wait, by the ids of their requests. A place is free when the request is answered, its client has gone,
    or it is forgotten: a member's join or sync is, once the same member's next one waits (J13, SG17).
    """

    def __init__(self, *, each_max: int, metrics: ServerMetrics) -> None:
        self._metrics = metrics
        self._quota = Quota[str](each_max, _tell_full)
        self._whose: dict[int, str] = {}

    @property
    def waiting(self) -> int:
        return len(self._whose)

    def take(self, request_id: int, whose: str, *, is_members: bool) -> bool:
        """Whether there was one left; for a member there always is."""
        if not self._quota.take(whose, beyond=is_members):
            self._metrics.waiting_refused += 1
            return False
        self._whose[request_id] = whose
        return True

    def leave(self, request_id: int) -> None:
        """The request waits no more, if it ever did."""
        whose = self._whose.pop(request_id, None)
        if whose is not None:
            self._quota.give_back(whose)


class WaitingLimit(Groups):
    """See the module. `places` are left by whoever forgets a request, too."""

    def __init__(self, groups: Groups, places: Places, is_member: Callable[[JoinGroup | SyncGroup], bool]) -> None:
        self._groups = groups
        self._is_member = is_member
        self._places = places

    def submit(self, command: AnyRequest, reply: ReplyTo) -> None:
        if not isinstance(command, JoinGroup | SyncGroup):
            self._groups.submit(command, reply)
            return
        request_id = command.caller.request_id
        if not self._places.take(request_id, _whose(command), is_members=self._is_member(command)):
            (refused,) = quarantine_reply(command)
            reply(refused.outcome)
            return

        def answered(outcome: Outcome) -> None:
            self._places.leave(request_id)
            reply(outcome)

        self._groups.submit(command, answered)

    def heartbeat_ticket(self, command: Heartbeat) -> HeartbeatTicket | None:
        return self._groups.heartbeat_ticket(command)

    def list_groups(self) -> Collection[ListedGroup] | ErrorCode:
        return self._groups.list_groups()

    def committed_offsets(self, group_id: GroupId) -> Mapping[tuple[str, int], CommittedOffset] | ErrorCode:
        return self._groups.committed_offsets(group_id)


def _tell_full(whose: str) -> None:
    log.warning("joins and syncs are told to try again: as many wait as --waiting-per-principal allows", whose=whose)


def _whose(command: JoinGroup | SyncGroup) -> str:
    principal = command.caller.principal
    return f"group {command.group_id}" if principal in {ANONYMOUS, NOT_KNOWN} else principal
