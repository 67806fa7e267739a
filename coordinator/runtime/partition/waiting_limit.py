"""Limits the number of waiting joins and syncs per principal.

A layer in front of the groups counts joins and syncs that are not answered yet, by principal, or by group where clients
do not authenticate. Beyond the limit they get the response of a group that is loading, on which all clients retry.
Requests of members are counted but never refused: a member's join may end the rebalance, and a group parks only one
join and one sync of each member.
"""

from collections.abc import Callable

import structlog

from muster.coordinator.group.commands import AnyRequest, JoinGroup, SyncGroup
from muster.coordinator.group.outcomes import Outcome
from muster.coordinator.load.quotas import Quota
from muster.coordinator.not_served import retry_reply
from muster.coordinator.observability.metrics import ServerMetrics
from muster.coordinator.principals import ANONYMOUS, UNKNOWN_PRINCIPAL
from muster.coordinator.service import DelegatingGroups, Groups, ReplyTo

log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)


class WaitingQuota:
    """The waiting requests, by id; released when answered or superseded, or when the client has disconnected."""

    def __init__(self, *, each_max: int, metrics: ServerMetrics) -> None:
        self._metrics = metrics
        self._quota = Quota[str](each_max, _log_full)
        self._whose: dict[int, str] = {}

    @property
    def waiting(self) -> int:
        return len(self._whose)

    def acquire(self, request_id: int, whose: str, *, is_members: bool) -> bool:
        """Count a request and return True, or return False at the limit, which does not apply to members."""
        if not self._quota.acquire(whose, beyond=is_members):
            self._metrics.waiting_refused += 1
            return False
        self._whose[request_id] = whose
        return True

    def release(self, request_id: int) -> None:
        """Release a request, if it is counted."""
        whose = self._whose.pop(request_id, None)
        if whose is not None:
            self._quota.release(whose)


class WaitingLimit(DelegatingGroups):
    """Counts unanswered joins and syncs, and refuses those beyond the limit with COORDINATOR_LOAD_IN_PROGRESS."""

    def __init__(
        self, groups: Groups, waiting_quota: WaitingQuota, is_member: Callable[[JoinGroup | SyncGroup], bool]
    ) -> None:
        super().__init__(groups)
        self._is_member = is_member
        self._quota = waiting_quota

    def submit(self, command: AnyRequest, reply: ReplyTo) -> None:
        if not isinstance(command, JoinGroup | SyncGroup):
            self._groups.submit(command, reply)
            return
        request_id = command.caller.request_id
        if not self._quota.acquire(request_id, _whose(command), is_members=self._is_member(command)):
            (refused,) = retry_reply(command)
            reply(refused.outcome)
            return

        def answered(outcome: Outcome) -> None:
            self._quota.release(request_id)
            reply(outcome)

        self._groups.submit(command, answered)


def _log_full(whose: str) -> None:
    log.warning("refusing joins and syncs with a retriable error: --waiting-per-principal is reached", whose=whose)


def _whose(command: JoinGroup | SyncGroup) -> str:
    principal = command.caller.principal
    return f"group {command.group_id}" if principal in {ANONYMOUS, UNKNOWN_PRINCIPAL} else principal
