"""A simulated consumer: the requests it sends to a harness, and what it remembers of the responses.

It has only what one consumer sends and learns; the harness has time, the group and the checks. A test can replace any
field of a request.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec
from kio.schema.errors import ErrorCode

from muster.coordinator.group.commands import (
    AnyRequest,
    AuthorizeCommit,
    Caller,
    CommitOffsets,
    Heartbeat,
    JoinGroup,
    LeavingMember,
    OffsetToCommit,
    SyncGroup,
)
from muster.coordinator.group.decide import Decision
from muster.coordinator.group.outcomes import (
    AuthorizeCommitOutcome,
    CommitOffsetsOutcome,
    HeartbeatOutcome,
    JoinGroupOutcome,
    LeaveGroupOutcome,
    Outcome,
    Superseded,
    SyncGroupOutcome,
)
from muster.events.events import AnyEvent
from muster.events.ids import UNKNOWN_MEMBER_ID, GroupInstanceId, MemberId
from muster.events.state import Protocol

if TYPE_CHECKING:
    from tests.coordinator.group.harness import Harness

SESSION_TIMEOUT_MS = 10_000
REBALANCE_TIMEOUT_MS = 60_000

JOIN, SYNC, HEARTBEAT, LEAVE, COMMIT, TXN_COMMIT = 11, 14, 12, 13, 8, 28

O = TypeVar("O", bound=Outcome)  # noqa: E741


def subscription(*topics: str) -> bytes:
    """A consumer's subscription as clients encode it, v0."""
    names = b"".join(len(topic).to_bytes(2, "big") + topic.encode() for topic in topics)
    return (0).to_bytes(2, "big") + len(topics).to_bytes(4, "big") + names + (-1).to_bytes(4, "big", signed=True)


def protocols(*names: str, metadata: bytes | None = None) -> tuple[Protocol, ...]:
    """A protocol list in the order of preference, all with the same metadata."""
    given = subscription("orders") if metadata is None else metadata
    return tuple(Protocol(name=name, metadata=given) for name in names or ("range",))


class Call(Generic[O]):
    """A request that was sent: its immediate effects, and its response when there is one."""

    def __init__(self, command: AnyRequest, learn: Callable[[O], None] | None) -> None:
        self.command = command
        self.answer: O | None = None
        self.lost = False
        self.decision: Decision
        self._learn = learn

    @property
    def parked(self) -> bool:
        return self.answer is None and not self.lost

    @property
    def outcome(self) -> O:
        assert self.answer is not None, "not answered"
        return self.answer

    @property
    def error(self) -> ErrorCode:
        outcome = self.outcome
        assert not isinstance(outcome, Superseded), "the rules leave it unanswered"
        return outcome.error

    @property
    def events(self) -> tuple[AnyEvent, ...]:
        return self.decision.events

    def take(self, outcome: O) -> None:
        assert self.answer is None, f"answered twice: {self.command}"
        assert not self.lost, f"answered, but it was lost: {self.command}"
        self.answer = outcome
        if self._learn is not None:
            self._learn(outcome)


class Client:
    """A consumer: sends requests as one of `version` would, and remembers its member id and generation."""

    def __init__(self, harness: "Harness", name: str, instance: str | None, **given: Any) -> None:
        self.harness = harness
        self.name = name
        self.instance = GroupInstanceId(instance) if instance is not None else None
        self.host = "/10.0.0.1"
        self.connection = harness.new_connection()
        self.version = 9
        self.protocol_type = "consumer"
        self.protocols = protocols()
        self.session_timeout_ms = SESSION_TIMEOUT_MS
        self.rebalance_timeout_ms = REBALANCE_TIMEOUT_MS
        self.member_id = UNKNOWN_MEMBER_ID
        self.generation_id = -1
        self.last_join: Call[JoinGroupOutcome] | None = None
        self.joined: JoinGroupOutcome | None = None
        self.assignment: bytes | None = None
        for field, value in given.items():
            assert hasattr(self, field)
            setattr(self, field, value)

    @property
    def is_leader(self) -> bool:
        return self.joined is not None and self.joined.leader_id == self.member_id

    def restarted(self, **given: Any) -> "Client":
        """Another process with the same configuration, instance id included."""
        kept = {
            field: getattr(self, field)
            for field in (
                "host",
                "version",
                "protocol_type",
                "protocols",
                "session_timeout_ms",
                "rebalance_timeout_ms",
            )
        }
        return Client(self.harness, self.name, self.instance, **(kept | given))

    # ---- requests -------------------------------------------------------------------------------

    def join(self, **fields: Any) -> Call[JoinGroupOutcome]:
        """JoinGroup; `fields` replace those of the command."""
        command = JoinGroup(
            group_id=self.harness.group_id,
            caller=self.caller(JOIN, self.version),
            member_id=self.member_id,
            group_instance_id=self.instance,
            proposed_member_id=self.harness.new_member_id(self.instance or self.name),
            protocol_type=self.protocol_type,
            protocols=self.protocols,
            session_timeout_ms=self.session_timeout_ms,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            reason=None,
            requires_known_member_id=self.version >= 4 and self.instance is None,
            supports_skip_assignment=self.version >= 9,
        )
        self.last_join = self.harness.ask(msgspec.structs.replace(command, **fields), self._learn_join)
        return self.last_join

    def enter(self, **fields: Any) -> Call[JoinGroupOutcome]:
        """JoinGroup, repeated with the returned member id if one is required (KIP-394)."""
        call = self.join(**fields)
        if call.answer is not None and call.error is ErrorCode.member_id_required:
            call = self.join(**fields)
        return call

    def sync(self, assignments: dict[MemberId, bytes] | None = None, **fields: Any) -> Call[SyncGroupOutcome]:
        return self.harness.ask(self.sync_command(assignments, **fields), self._learn_sync)

    def sync_command(self, assignments: dict[MemberId, bytes] | None = None, **fields: Any) -> SyncGroup:
        command = SyncGroup(
            group_id=self.harness.group_id,
            caller=self.caller(SYNC, 5),
            member_id=self.member_id,
            group_instance_id=self.instance,
            generation_id=self.generation_id,
            protocol_type=self.protocol_type,
            protocol_name=self.joined.protocol_name if self.joined else None,
            assignments=tuple((assignments or {}).items()),
        )
        return msgspec.structs.replace(command, **fields)

    def heartbeat(self, **fields: Any) -> Call[HeartbeatOutcome]:
        command = Heartbeat(
            group_id=self.harness.group_id,
            caller=self.caller(HEARTBEAT, 4),
            member_id=self.member_id,
            group_instance_id=self.instance,
            generation_id=self.generation_id,
        )
        return self.harness.ask(msgspec.structs.replace(command, **fields))

    def leave(self, reason: str | None = None) -> Call[LeaveGroupOutcome]:
        return self.harness.leave(
            LeavingMember(member_id=self.member_id, group_instance_id=self.instance, reason=reason), client=self
        )

    def commit(self, *offsets: OffsetToCommit, **fields: Any) -> Call[CommitOffsetsOutcome]:
        command = CommitOffsets(
            group_id=self.harness.group_id,
            caller=self.caller(COMMIT, 9),
            member_id=self.member_id,
            group_instance_id=self.instance,
            generation_id=self.generation_id,
            unknown_group_error=ErrorCode.group_id_not_found,
            offsets=offsets or (self.harness.offset(),),
        )
        return self.harness.ask(msgspec.structs.replace(command, **fields))

    def may_commit(self, *, in_transaction: bool = False, **fields: Any) -> Call[AuthorizeCommitOutcome]:
        """Authorize a commit of offsets that are stored elsewhere."""
        command = AuthorizeCommit(
            group_id=self.harness.group_id,
            caller=self.caller(TXN_COMMIT, 3) if in_transaction else self.caller(COMMIT, 9),
            member_id=self.member_id,
            group_instance_id=self.instance,
            generation_id=self.generation_id,
            unknown_group_error=ErrorCode.group_id_not_found,
            is_transactional=in_transaction,
        )
        return self.harness.ask(msgspec.structs.replace(command, **fields))

    def caller(self, api_key: int, api_version: int) -> Caller:
        self.connection.received_ms = self.harness.now_ms
        return self.harness.caller(
            api_key,
            api_version,
            client_id=self.name,
            client_host=self.host,
            principal=f"User:{self.name}",
            connection=self.connection,
        )

    def _learn_join(self, outcome: JoinGroupOutcome) -> None:
        if outcome.error in (ErrorCode.none, ErrorCode.member_id_required):
            self.member_id = outcome.member_id
            self.generation_id = outcome.generation_id
        if outcome.error is ErrorCode.none:
            self.joined = outcome

    def _learn_sync(self, outcome: SyncGroupOutcome) -> None:
        if outcome.error is ErrorCode.none:
            self.assignment = outcome.assignment
