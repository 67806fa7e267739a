"""Quarantined groups: they have a record that cannot be read, so they are not served until they are repaired.

Answers the requests of quarantined groups, most of them with COORDINATOR_LOAD_IN_PROGRESS, and makes repairs durable.
`group/repair.py` decides what a repair keeps.
"""

import shlex
from collections.abc import Callable, Mapping, Sequence

import structlog
from kio.schema.errors import ErrorCode

from muster.coordinator.group.commands import AlterGroupConfig, AnyRequest, DescribeGroupConfig
from muster.coordinator.group.outcomes import AlterGroupConfigOutcome, DescribeGroupConfigOutcome, Outcome, Reply
from muster.coordinator.group.repair import describe_damage, is_repair, repair_group, repair_refusal, tombstones
from muster.coordinator.group.settings import GroupSettings
from muster.coordinator.group.turn import Now
from muster.coordinator.not_served import retry_reply
from muster.coordinator.runtime.partition.outbox import Outbox, WriteUnit
from muster.coordinator.runtime.partition.waiting import WaitingRequests
from muster.events.avro.codec import records_of
from muster.events.damage import Damage
from muster.events.ids import GroupId
from muster.events.log.base import AppendRefused
from muster.events.state import Group

log = structlog.get_logger(__name__)


def way_out(group_id: GroupId, bootstrap: str) -> str:
    """The command that shows what a repair would keep, and does it."""
    return f"muster groups repair {shlex.quote(group_id)} --bootstrap {bootstrap}"


class Quarantine:
    """The quarantined groups. `repaired` is called with each group that is served again.

    `read_only`: whether writes are deferred at present.
    """

    def __init__(
        self,
        damages: Mapping[GroupId, Damage],
        *,
        outbox: Outbox,
        format_level: int,
        note_now: Callable[[], Now],
        settings: GroupSettings,
        waiting: WaitingRequests,
        repaired: Callable[[Group], None],
        read_only: Callable[[], bool],
    ) -> None:
        self._damages = dict(damages)
        self._outbox = outbox
        self._format_level = format_level
        self._note_now = note_now
        self._settings = settings
        self._waiting = waiting
        self._repaired = repaired
        self._is_read_only = read_only
        self._under_way: set[GroupId] = set()
        self._is_closed = False

    def damages(self) -> list[Damage]:
        """The quarantined groups. Thread-safe."""
        return list(self._damages.values())

    def __contains__(self, group_id: GroupId) -> bool:
        return group_id in self._damages

    def __len__(self) -> int:
        return len(self._damages)

    def close(self) -> None:
        """Stop; a repair that is being stored takes no effect here."""
        self._is_closed = True

    def submit(self, command: AnyRequest) -> None:
        """Answer a request to a quarantined group, immediately or when a repair is durable."""
        damage = self._damages[command.group_id]
        if isinstance(command, DescribeGroupConfig):
            error = ErrorCode.coordinator_load_in_progress
            self._reply(command, DescribeGroupConfigOutcome(error=error, damage=describe_damage(damage)))
        elif isinstance(command, AlterGroupConfig) and is_repair(command.changes):
            self._repair(damage, command)
        else:
            self._release(retry_reply(command))

    def _repair(self, damage: Damage, command: AlterGroupConfig) -> None:
        refused = repair_refusal(command.changes)
        if refused is not None or command.validate_only:
            self._reply(command, refused or AlterGroupConfigOutcome(error=ErrorCode.none))
        elif damage.group_id in self._under_way or self._is_read_only():
            self._release(retry_reply(command))
        else:
            self._under_way.add(damage.group_id)
            self._store(damage, command)

    def _store(self, damage: Damage, command: AlterGroupConfig) -> None:
        group, events = repair_group(damage, command, self._note_now(), self._settings)

        def settled(refused: AppendRefused | None) -> None:
            if self._is_closed:
                return
            self._under_way.discard(damage.group_id)
            if refused is not None:
                message = (
                    f"the repair needs {refused.size_bytes} bytes in the event log; the limit is {refused.limit_bytes}"
                )
                self._reply(command, AlterGroupConfigOutcome(error=ErrorCode.unknown_server_error, message=message))
                return
            del self._damages[damage.group_id]
            log.warning(
                "group repaired",
                group_id=group.group_id,
                generation_id=group.generation_id,
                lost=[each.offset for each in damage.broken],
                client_id=command.caller.client_id,
                client_host=command.caller.client_host,
                principal=command.caller.principal,
            )
            self._repaired(group)
            self._reply(command, AlterGroupConfigOutcome(error=ErrorCode.none))

        self._outbox.submit(
            WriteUnit(
                transition=(*tombstones(damage), *records_of(events, self._format_level)), offsets=(), settled=settled
            )
        )

    def _reply(self, command: AnyRequest, outcome: Outcome) -> None:
        self._release([Reply(command.caller.request_id, outcome)])

    def _release(self, replies: Sequence[Reply]) -> None:
        self._waiting.release_each(replies)
