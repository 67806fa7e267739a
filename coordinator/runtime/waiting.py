"""The requests of a partition that have not been answered, and where their answers go.

What belongs here: one answer for each, and none kept for a request that will never have one. What it must not know:
how a request is decided.
"""

from collections.abc import Callable, Iterable, Sequence

import msgspec
import structlog

from muster.coordinator.group.commands import AnyCommand, AnyRequest, JoinGroup, SyncGroup
from muster.coordinator.group.outcomes import Outcome, Reply
from muster.coordinator.service import ReplyTo
from muster.events.ids import GroupId, MemberId

log = structlog.get_logger(__name__)

Parking = tuple[type[JoinGroup | SyncGroup], GroupId, MemberId]
"""Where a request can be parked: a group parks one join and one sync of each member."""


class Waiting(msgspec.Struct, frozen=True, eq=False):
    """A request that has not been answered, and where its answer goes."""

    command: AnyRequest
    reply_to: ReplyTo


class WaitingRequests:
    """See the module. `forgotten` is told the id of a request that will not be answered any more."""

    def __init__(self, forgotten: Callable[[int], None]) -> None:
        self._forgotten = forgotten
        self._waiting: dict[int, Waiting] = {}
        self._parked: dict[Parking, int] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, command: AnyRequest, reply_to: ReplyTo) -> None:
        """Keep the request until it is answered."""
        self._waiting[command.caller.request_id] = Waiting(command, reply_to)

    def asked_by(self, reply: Reply) -> tuple[MemberId, int] | None:
        """The member that is answered, and when its request arrived; None when it names none, or waits no more."""
        waiting = self._waiting.get(reply.request_id)
        if waiting is None:
            return None
        member_id = getattr(reply.outcome, "member_id", None) or getattr(waiting.command, "member_id", None)
        return (member_id, waiting.command.caller.arrived_ms) if member_id else None

    def decided(self, command: AnyCommand, replies: Sequence[Reply]) -> None:
        """Note what came of the request: `replies` are about to be released; if its own is not among them it is parked.

        The rules forget a parked request that is repeated, and never answer it (J13, SG17). So it is forgotten here.
        """
        for reply in replies:
            self._unpark(reply.request_id)
        if not isinstance(command, JoinGroup | SyncGroup):
            return
        parking, request_id = _parking(command), command.caller.request_id
        if any(reply.request_id == request_id for reply in replies):
            return
        repeated = self._parked.get(parking)
        if repeated is not None and self._waiting.pop(repeated, None) is not None:
            self._forgotten(repeated)
        self._parked[parking] = request_id
        waiting = self._waiting.get(request_id)
        if waiting is not None:  # what it brought is the group's now, or nobody's
            self._waiting[request_id] = Waiting(_without_content(command), waiting.reply_to)

    def release(self, reply: Reply) -> None:
        """Give a request its answer."""
        self._unpark(reply.request_id)
        waiting = self._waiting.pop(reply.request_id, None)
        if waiting is not None:
            tell(waiting, reply.outcome)

    def release_each(self, replies: Iterable[Reply]) -> None:
        """Give these their answers."""
        for reply in replies:
            self.release(reply)

    def _unpark(self, request_id: int) -> None:
        waiting = self._waiting.get(request_id)
        if waiting is not None and isinstance(waiting.command, JoinGroup | SyncGroup):
            parking = _parking(waiting.command)
            if self._parked.get(parking) == request_id:
                del self._parked[parking]

    def release_all(self, answers: Callable[[AnyRequest], Iterable[Reply]]) -> None:
        """Answer every request with what `answers` has for it."""
        for waiting in list(self._waiting.values()):
            self.release_each(answers(waiting.command))


def tell(waiting: Waiting, outcome: Outcome) -> None:
    """Give somebody the answer. A bug in what makes an answer of an outcome is that client's alone."""
    try:
        waiting.reply_to(outcome)
    except Exception:
        log.exception("an answer could not be given", command=type(waiting.command).__name__)


def _without_content(command: JoinGroup | SyncGroup) -> JoinGroup | SyncGroup:
    if isinstance(command, JoinGroup):
        return msgspec.structs.replace(command, protocols=())
    return msgspec.structs.replace(command, assignments=())


def _parking(command: JoinGroup | SyncGroup) -> Parking:
    if isinstance(command, JoinGroup):
        return JoinGroup, command.group_id, command.member_id or command.proposed_member_id
    return SyncGroup, command.group_id, command.member_id
