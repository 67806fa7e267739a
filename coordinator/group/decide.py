"""decide(): one command, one decision. Reads top to bottom as the table of commands.

A decision is a value: the events that must be durable before its replies may be sent, and the group and its soft state
from then on. If the events cannot be stored, the decision is discarded.
"""

from typing import assert_never

import msgspec
from kio.schema.errors import ErrorCode

from muster.coordinator.group.alter_configs import alter_group_config
from muster.coordinator.group.commands import (
    AlterGroupConfig,
    AnyCommand,
    AnyDeadline,
    AnyUpkeep,
    AuthorizeCommit,
    CheckCapacity,
    CommitOffsets,
    Deadline,
    DeleteGroup,
    DeleteOffsets,
    DescribeGroup,
    DescribeGroupConfig,
    ExpireOffsets,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    RebalanceUnassigned,
    RejectAssignment,
    ReleaseGroup,
    Request,
    RewriteEntities,
    SyncGroup,
)
from muster.coordinator.group.delete import delete_group
from muster.coordinator.group.describe import describe
from muster.coordinator.group.duels import note_if_fenced
from muster.coordinator.group.heartbeat import heartbeat_error
from muster.coordinator.group.join import (
    REFUSED_BEFORE_LOOKUP,
    error_before_lookup,
    join_error,
    join_group,
    refuse_before_lookup,
)
from muster.coordinator.group.leave import leave_group, leave_unknown_group
from muster.coordinator.group.listing import describe_config
from muster.coordinator.group.membership_timeouts import arm_deadlines
from muster.coordinator.group.offsets import OffsetsChange, is_transactional, validate_commit, validate_deletion
from muster.coordinator.group.outcomes import (
    AlterGroupConfigOutcome,
    DeleteGroupOutcome,
    HeartbeatOutcome,
    JoinGroupOutcome,
    LeaveGroupOutcome,
    Outcome,
    ReleaseGroupOutcome,
    Reply,
    SyncGroupOutcome,
)
from muster.coordinator.group.rebalance import prepare_rebalance
from muster.coordinator.group.release import release_group
from muster.coordinator.group.retention import (
    expire_group,
    expired_offsets,
    is_kept_without_offsets,
    may_have_offsets_upstream,
)
from muster.coordinator.group.returned import after_return
from muster.coordinator.group.rewriting import rewrite_entities
from muster.coordinator.group.settings import GroupSettings
from muster.coordinator.group.soft_state import Session, SoftState
from muster.coordinator.group.sync import reject_assignment, sync_group
from muster.coordinator.group.timeouts import run_deadline
from muster.coordinator.group.turn import Now, Turn
from muster.coordinator.group.unassigned import rebalance_unassigned
from muster.events.causes import Cause
from muster.events.events import AnyEvent, GroupCreated, GroupDeleted
from muster.events.evolve import is_gone
from muster.events.ids import UNKNOWN_MEMBER_ID
from muster.events.state import Group, GroupState, new_group

AnyChange = SyncGroup | LeaveGroup | DeleteGroup | ReleaseGroup | AlterGroupConfig
"""The requests that can only change a group that exists."""


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one command.

    `group` is None if the group does not exist (any more). `refreshed_session` is to be refreshed as of the request's
    arrival. `offsets` must be made durable after the events and before the replies are sent; `offsets_expired` is how
    many of them are deleted because they expired.
    """

    events: tuple[AnyEvent, ...] = ()
    replies: tuple[Reply, ...] = ()
    group: Group | None
    soft: SoftState
    refreshed_session: Session | None = None
    offsets: OffsetsChange | None = None
    offsets_expired: int = 0
    keeps_tickets: bool = False


def decide(command: AnyCommand, group: Group | None, soft: SoftState, now: Now, settings: GroupSettings) -> Decision:
    """Decide one command. Changes neither `group` nor `soft`."""
    decision = _decide(command, group, soft, now, settings)
    noted = after_return(command, decision.soft, now)
    return decision if noted is decision.soft else msgspec.structs.replace(decision, soft=noted)


def _decide(command: AnyCommand, group: Group | None, soft: SoftState, now: Now, settings: GroupSettings) -> Decision:
    match command:
        case JoinGroup():
            return _decide_join(command, group, soft, now, settings)
        case Heartbeat():
            return _decide_heartbeat(command, group, soft, now, settings)
        case CommitOffsets() | AuthorizeCommit():
            return _decide_commit(command, group, soft, now, settings)
        case DeleteOffsets():
            return _decide_deletion(command, group, soft)
        case DescribeGroup():
            return _answer(command, describe(group), group, soft)
        case ExpireOffsets():
            return _decide_expiry(command, group, soft, now, settings)
        case DescribeGroupConfig():
            return _answer(command, describe_config(group, soft, now), group, soft)
        case SyncGroup() | LeaveGroup() | DeleteGroup() | ReleaseGroup() | AlterGroupConfig():
            if group is None or not (command.group_id or isinstance(command, DeleteGroup)):
                return _answer(command, _without_group(command), group, soft)
        case Deadline() | RejectAssignment() | CheckCapacity() | RebalanceUnassigned() | RewriteEntities():
            pass
        case _:
            assert_never(command)
    if group is None:
        return Decision(group=None, soft=soft)
    turn = Turn(group.copy(), soft.copy(), now, settings)
    _take(turn, command)
    return _decision(turn)


def _take(
    turn: Turn,
    command: AnyChange | AnyDeadline | AnyUpkeep,
) -> None:
    """Run a command that needs an existing group and may change it."""
    match command:
        case SyncGroup():
            sync_group(turn, command)
        case LeaveGroup():
            leave_group(turn, command)
        case DeleteGroup():
            delete_group(turn, command)
        case ReleaseGroup():
            release_group(turn, command)
        case AlterGroupConfig():
            alter_group_config(turn, command)
        case RejectAssignment():
            reject_assignment(turn, command.sync, command.error)
        case CheckCapacity():
            _check_capacity(turn)
        case RebalanceUnassigned():
            rebalance_unassigned(turn, command)
        case RewriteEntities():
            rewrite_entities(turn, command)
        case _:
            run_deadline(turn, command)


def _decision(turn: Turn) -> Decision:
    arm_deadlines(turn)
    turn.finish()
    turn.forget_census()
    gone = is_gone(turn.group)
    return Decision(
        events=tuple(turn.events),
        replies=tuple(turn.replies),
        group=None if gone else turn.group,
        soft=SoftState() if gone else turn.soft,
        offsets=OffsetsChange(group_id=turn.group.group_id, all_deleted=True) if gone else None,
    )


def _answer(
    command: Request, outcome: Outcome, group: Group | None, soft: SoftState, refreshed_session: Session | None = None
) -> Decision:
    return Decision(
        replies=(Reply(command.caller.request_id, outcome),),
        group=group,
        soft=soft,
        refreshed_session=refreshed_session,
    )


def _decide_join(
    command: JoinGroup, group: Group | None, soft: SoftState, now: Now, settings: GroupSettings
) -> Decision:
    error = _error_without_turn(command, group, settings)
    is_released = group is not None and settings.offsets_are_upstream and bool(group.config.coordinator)
    if error in REFUSED_BEFORE_LOOKUP and error is error_before_lookup(command, settings) and not is_released:
        turn = _turn_of_join(command, group, soft, now, settings)
        refuse_before_lookup(turn, command, error)
        if group is None:
            return _for_history_alone(turn, soft)
        return _decision(turn) if turn.events else _counted(turn, group)
    if error is not ErrorCode.none:
        return _answer(command, JoinGroupOutcome(error=error, member_id=command.member_id), group, soft)
    turn = _turn_of_join(command, group, soft, now, settings)
    join_group(turn, command)
    return _decision(turn)


def _counted(turn: Turn, group: Group) -> Decision:
    """Return the decision on a refusal beyond the rate limit: it is only counted, so heartbeat tickets stay valid."""
    return Decision(replies=tuple(turn.replies), group=group, soft=turn.soft, keeps_tickets=True)


def _for_history_alone(turn: Turn, soft: SoftState) -> Decision:
    """Delete a group that was created only to record a refusal; the soft state of the group id is kept."""
    turn.enter(GroupState.DEAD)
    turn.record(GroupDeleted)
    return Decision(events=tuple(turn.events), replies=tuple(turn.replies), group=None, soft=soft)


def would_refuse(
    command: JoinGroup, group: Group | None, soft: SoftState, now: Now, settings: GroupSettings
) -> ErrorCode:
    """Return the error with which `decide` would refuse the join now; NONE if it would park it or hand out an id."""
    error = _error_without_turn(command, group, settings)
    if error is not ErrorCode.none:
        return error
    return join_error(_turn_of_join(command, group, soft, now, settings), command)


def _error_without_turn(command: JoinGroup, group: Group | None, settings: GroupSettings) -> ErrorCode:
    error = error_before_lookup(command, settings)
    if error is not ErrorCode.none:
        return error
    if group is None:
        return ErrorCode.none if command.member_id == UNKNOWN_MEMBER_ID else ErrorCode.unknown_member_id  # J1
    if settings.offsets_are_upstream and group.config.coordinator:
        # Released: the client finds the coordinator upstream when it sends FindCoordinator again.
        return ErrorCode.coordinator_load_in_progress
    return ErrorCode.none


def _turn_of_join(command: JoinGroup, group: Group | None, soft: SoftState, now: Now, settings: GroupSettings) -> Turn:
    if group is None:
        return _turn_of_new_group(command, soft, now, settings)
    return Turn(group.copy(), soft.copy(), now, settings)


def _turn_of_new_group(command: Request, soft: SoftState, now: Now, settings: GroupSettings) -> Turn:
    """Begin a turn with the group's first event (J2, J3)."""
    group = new_group(command.group_id, incarnation=now.incarnation, wall_ms=now.wall_ms)
    turn = Turn(group, soft.copy(), now, settings)
    turn.caused_by(Cause.GROUP_CREATED, command.caller, UNKNOWN_MEMBER_ID, None)
    turn.record(GroupCreated)
    return turn


def _decide_heartbeat(
    command: Heartbeat, group: Group | None, soft: SoftState, now: Now, settings: GroupSettings
) -> Decision:
    if not command.group_id:
        return _answer(command, HeartbeatOutcome(error=ErrorCode.invalid_group_id), group, soft)
    if group is None:
        return _answer(command, HeartbeatOutcome(error=ErrorCode.unknown_member_id), group, soft)
    error = heartbeat_error(group, command)
    if error is ErrorCode.fenced_instance_id or command.member_id in soft.replaced_members:
        turn = Turn(group.copy(), soft.copy(), now, settings)
        note_if_fenced(turn, error, command.caller, command.member_id, command.group_instance_id)
        turn.reply(command.caller, HeartbeatOutcome(error=error))
        return _decision(turn)
    refreshes_session = error in (ErrorCode.none, ErrorCode.rebalance_in_progress)
    refreshed_session = soft.sessions.get(command.member_id) if refreshes_session else None
    return _answer(command, HeartbeatOutcome(error=error), group, soft, refreshed_session)


def _decide_commit(
    command: CommitOffsets | AuthorizeCommit,
    group: Group | None,
    soft: SoftState,
    now: Now,
    settings: GroupSettings,
) -> Decision:
    outcome, offsets = validate_commit(group, command, settings)
    accepted = outcome.error is ErrorCode.none
    if group is None and offsets is not None:
        # A simple consumer's group never has members, but it is listed, described and deleted like any other (OC1).
        turn = _turn_of_new_group(command, soft, now, settings)
    elif (
        group is not None
        and not accepted
        and (outcome.error is ErrorCode.fenced_instance_id or command.member_id in soft.replaced_members)
    ):
        turn = Turn(group.copy(), soft.copy(), now, settings)
        note_if_fenced(turn, outcome.error, command.caller, command.member_id, command.group_instance_id)
    else:
        refreshes_session = (
            accepted and group is not None and group.state is not GroupState.EMPTY and not is_transactional(command)
        )
        refreshed_session = soft.sessions.get(command.member_id) if refreshes_session else None
        return msgspec.structs.replace(_answer(command, outcome, group, soft, refreshed_session), offsets=offsets)
    turn.reply(command.caller, outcome)
    return msgspec.structs.replace(_decision(turn), offsets=offsets)


def _decide_deletion(command: DeleteOffsets, group: Group | None, soft: SoftState) -> Decision:
    outcome = validate_deletion(group, soft, command)
    decision = _answer(command, outcome, group, soft)
    if outcome.error is not ErrorCode.none:
        return decision
    deleted = tuple(key for key in command.partitions if key not in outcome.refused)
    return msgspec.structs.replace(decision, offsets=OffsetsChange(group_id=command.group_id, deleted=deleted))


def _decide_expiry(
    command: ExpireOffsets, group: Group | None, soft: SoftState, now: Now, settings: GroupSettings
) -> Decision:
    if group is None:
        return Decision(group=None, soft=soft)
    expired = expired_offsets(group, soft, command.offsets, command.wall_ms, settings)
    none_left = len(expired) == len(command.offsets) and not may_have_offsets_upstream(group, command.wall_ms, settings)
    if none_left and not is_kept_without_offsets(group, soft):
        turn = Turn(group.copy(), soft.copy(), now, settings)
        expire_group(turn)
        decision = _decision(turn)
    else:
        change = OffsetsChange(group_id=command.group_id, deleted=expired) if expired else None
        decision = Decision(group=group, soft=soft, offsets=change)
    return msgspec.structs.replace(decision, offsets_expired=len(expired))


def _without_group(command: AnyChange) -> Outcome:
    """Return the response if the group does not exist, or the request names none (G17, G29, SG1, DL1)."""
    no_id = not command.group_id
    match command:
        case SyncGroup():
            return SyncGroupOutcome(error=ErrorCode.invalid_group_id if no_id else ErrorCode.unknown_member_id)
        case LeaveGroup():
            return LeaveGroupOutcome(error=ErrorCode.invalid_group_id) if no_id else leave_unknown_group(command)
        case DeleteGroup():
            return DeleteGroupOutcome(error=ErrorCode.group_id_not_found)
        case ReleaseGroup():
            return ReleaseGroupOutcome(error=ErrorCode.group_id_not_found)
        case AlterGroupConfig():
            error = ErrorCode.invalid_group_id if no_id else ErrorCode.group_id_not_found
            return AlterGroupConfigOutcome(error=error, message=f"there is no group {command.group_id!r}")


def _check_capacity(turn: Turn) -> None:
    """Rebalance a group over group.max.size after a takeover, which drops the surplus (X8, LD10)."""
    crowded = len(turn.group.members) > turn.settings.max_size
    if crowded and turn.image.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
        turn.caused_by_deadline(Cause.OVER_CAPACITY, turn.now_ms)
        prepare_rebalance(turn)
