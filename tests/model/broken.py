"""Rules that are broken in one way each: what the checks are worth.

Each is a wrapper around the real `decide` (or `restore_soft_state`), made so that what it returns hangs together as far
as it can: a rule's bug is hard to find when its events, its group and its answers agree.
"""

from collections.abc import Callable
from typing import Any

import msgspec
from kio.schema.errors import ErrorCode

from muster.coordinator.group.commands import (
    AnyCommand,
    CheckCapacity,
    EndJoinPhase,
    ExpirePendingMember,
    ExpireSession,
    Heartbeat,
    JoinGroup,
)
from muster.coordinator.group.decide import Decision, decide
from muster.coordinator.group.loaded_groups import restore_soft_state
from muster.coordinator.group.outcomes import HeartbeatOutcome, JoinGroupOutcome, Outcome, Reply, SyncGroupOutcome
from muster.coordinator.group.settings import GroupSettings
from muster.coordinator.group.soft_state import SoftState
from muster.coordinator.group.turn import Now
from muster.events.causes import Cause
from muster.events.events import (
    AnyEvent,
    GroupEvent,
    JoinPhaseCompleted,
    MemberAssigned,
    MemberRemoved,
    StaticMemberReplaced,
)
from muster.events.evolve import evolve
from muster.events.ids import UNKNOWN_MEMBER_ID, MemberId
from muster.events.state import NO_GENERATION, Group, GroupState, new_group
from tests.model.world import GROUP_ID, UNIT_MS, Rules

Mend = Callable[[AnyCommand, Group | None, SoftState, Decision], Decision]
replace = msgspec.structs.replace


def _after(mend: Mend) -> Rules:
    """The real decision, changed."""

    def broken(
        command: AnyCommand, group: Group | None, soft: SoftState, now: Now, settings: GroupSettings
    ) -> Decision:
        return mend(command, group, soft, decide(command, group, soft, now, settings))

    return Rules(decide=broken)


def _resuming(change: Callable[[Group, SoftState, int], Any]) -> Rules:
    """The real soft state after a takeover, changed in place."""

    def broken(group: Group, now_ms: int, settings: GroupSettings) -> SoftState:
        soft = restore_soft_state(group, now_ms, settings)
        change(group, soft, now_ms)
        return soft

    return Rules(resume=broken)


def _rewritten(group: Group | None, decision: Decision, rewrite: Callable[[AnyEvent], AnyEvent]) -> Decision:
    """Other events, and the group that they add up to."""
    if not decision.events or decision.group is None:
        return decision
    before = group or new_group(GROUP_ID, incarnation=decision.events[0].incarnation, wall_ms=0)
    events = tuple(replace(rewrite(event), seq=seq) for seq, event in enumerate(decision.events, start=before.seq + 1))
    return replace(decision, events=events, group=evolve(before, events))


def _answered(decision: Decision, change: Callable[[Outcome], Outcome]) -> Decision:
    return replace(decision, replies=tuple(Reply(r.request_id, change(r.outcome)) for r in decision.replies))


# ---- hard state and its events -----------------------------------------------------------------


def leads_under_its_old_id(_c: AnyCommand, group: Group | None, _s: SoftState, decision: Decision) -> Decision:
    """A leader is replaced, and the group's record names the old id."""
    old = {e.member.member_id: e.replaced_member_id for e in decision.events if isinstance(e, StaticMemberReplaced)}

    def rewrite(event: AnyEvent) -> AnyEvent:
        if isinstance(event, GroupEvent) and event.group.leader_id in old:
            return replace(event, group=replace(event.group, leader_id=old[event.group.leader_id]))
        return event

    return _rewritten(group, decision, rewrite)


def gives_all_the_same(_c: AnyCommand, group: Group | None, _s: SoftState, decision: Decision) -> Decision:
    """Assign and send to all members what the first one gets."""
    first = next((e.member.assignment for e in decision.events if isinstance(e, MemberAssigned)), None)
    if first is None:
        return decision

    def rewrite(event: AnyEvent) -> AnyEvent:
        if not isinstance(event, MemberAssigned):
            return event
        return replace(event, member=replace(event.member, assignment=first))

    def change(outcome: Outcome) -> Outcome:
        return replace(outcome, assignment=first) if isinstance(outcome, SyncGroupOutcome) else outcome

    return _answered(_rewritten(group, decision, rewrite), change)


def keeps_the_generation(_c: AnyCommand, group: Group | None, _s: SoftState, decision: Decision) -> Decision:
    """The join phase ends, and the generation stays the same."""
    if group is None or not any(isinstance(event, JoinPhaseCompleted) for event in decision.events):
        return decision
    old = group.generation_id

    def rewrite(event: AnyEvent) -> AnyEvent:
        if not isinstance(event, GroupEvent):
            return event
        return replace(event, group=replace(event.group, generation_id=old))

    return _rewritten(group, decision, rewrite)


def keeps_older_assignments(_c: AnyCommand, group: Group | None, _s: SoftState, decision: Decision) -> Decision:
    """A rebalance starts in the sync phase, and the assignments of the previous generation stay valid."""
    if group is None or group.state is not GroupState.COMPLETING_REBALANCE:
        return decision
    older = group.image.assigned_generation_id

    def rewrite(event: AnyEvent) -> AnyEvent:
        if not isinstance(event, GroupEvent) or event.group.assigned_generation_id != NO_GENERATION:
            return event
        return replace(event, group=replace(event.group, assigned_generation_id=older))

    return _rewritten(group, decision, rewrite)


def forgets_to_store_a_replacement(_c: AnyCommand, _g: Group | None, _s: SoftState, decision: Decision) -> Decision:
    """Known bug S3."""
    events = tuple(e for e in decision.events if not isinstance(e, StaticMemberReplaced))
    return replace(decision, events=events)


def forgets_to_store_a_removal(_c: AnyCommand, _g: Group | None, _s: SoftState, decision: Decision) -> Decision:
    return replace(decision, events=tuple(e for e in decision.events if not isinstance(e, MemberRemoved)))


def blames_static_members_for_not_rejoining(
    _c: AnyCommand, group: Group | None, _s: SoftState, decision: Decision
) -> Decision:
    def rewrite(event: AnyEvent) -> AnyEvent:
        static = isinstance(event, MemberRemoved) and event.member.group_instance_id is not None
        return replace(event, why=replace(event.why, cause=Cause.NOT_REJOINED)) if static else event

    return _rewritten(group, decision, rewrite)


def keeps_members_that_did_not_rejoin(
    _c: AnyCommand, group: Group | None, _s: SoftState, decision: Decision
) -> Decision:
    """Dynamic members stay in the next generation without having come for it."""
    if not any(isinstance(event, JoinPhaseCompleted) for event in decision.events):
        return decision
    kept = tuple(
        event
        for event in decision.events
        if not isinstance(event, MemberRemoved) or event.why.cause is not Cause.NOT_REJOINED
    )
    return _rewritten(group, replace(decision, events=kept), lambda event: event)


# ---- answers -----------------------------------------------------------------------------------


def lets_the_fenced_heartbeat(_c: AnyCommand, _g: Group | None, _s: SoftState, decision: Decision) -> Decision:
    def change(outcome: Outcome) -> Outcome:
        fenced = isinstance(outcome, HeartbeatOutcome) and outcome.error is ErrorCode.fenced_instance_id
        return HeartbeatOutcome(error=ErrorCode.none) if fenced else outcome

    return _answered(decision, change)


def names_every_member_as_leader(_c: AnyCommand, _g: Group | None, _s: SoftState, decision: Decision) -> Decision:
    def change(outcome: Outcome) -> Outcome:
        if not isinstance(outcome, JoinGroupOutcome) or outcome.error is not ErrorCode.none:
            return outcome
        return replace(outcome, leader_id=outcome.member_id)

    return _answered(decision, change)


def answers_what_is_not_stored(_c: AnyCommand, group: Group | None, soft: SoftState, decision: Decision) -> Decision:
    """The append failed, and the responses are sent anyway."""
    return replace(decision, events=(), group=group, soft=soft) if decision.events else decision


def does_not_fence_the_parked_join(_c: AnyCommand, _g: Group | None, _s: SoftState, decision: Decision) -> Decision:
    """Known bug S1."""
    replies = tuple(
        reply
        for reply in decision.replies
        if not isinstance(reply.outcome, JoinGroupOutcome) or reply.outcome.error is not ErrorCode.fenced_instance_id
    )
    return replace(decision, replies=replies)


# ---- soft state --------------------------------------------------------------------------------


def keeps_the_old_id_in_unsynced(_c: AnyCommand, _g: Group | None, soft: SoftState, decision: Decision) -> Decision:
    """Rule ST27, as Kafka has it."""
    changed = decision.soft.copy()
    for event in decision.events:
        if isinstance(event, StaticMemberReplaced) and event.replaced_member_id in soft.pending_syncs:
            changed.pending_syncs.discard(event.member.member_id)
            changed.pending_syncs.add(event.replaced_member_id)
    return replace(decision, soft=changed)


def never_ends_the_join_phase(
    command: AnyCommand, group: Group | None, soft: SoftState, decision: Decision
) -> Decision:
    """The end is postponed each time it is due, while a request is parked."""
    if not isinstance(command, EndJoinPhase) or not soft.parked_joins or soft.join_deadline_ms is None:
        return decision
    later = soft.copy()
    later.join_deadline_ms = soft.join_deadline_ms + UNIT_MS
    return Decision(group=group, soft=later)


def extends_the_phase_for_each_join(c: AnyCommand, _g: Group | None, soft: SoftState, decision: Decision) -> Decision:
    if not isinstance(c, JoinGroup) or soft.join_deadline_ms is None or decision.soft.join_deadline_ms is None:
        return decision
    later = decision.soft.copy()
    later.join_deadline_ms = decision.soft.join_deadline_ms + UNIT_MS
    return replace(decision, soft=later)


def ignores_present_members(command: AnyCommand, group: Group | None, soft: SoftState, decision: Decision) -> Decision:
    """An id that was handed out expires, and it is not noticed that the phase waited only for it."""
    if not isinstance(command, ExpirePendingMember):
        return decision
    left = soft.copy()
    del left.pending_members[command.member_id]
    return Decision(group=group, soft=left)


def does_not_feed_the_session(_c: AnyCommand, _g: Group | None, _s: SoftState, decision: Decision) -> Decision:
    return replace(decision, refreshed_session=None)


def changes_what_it_was_given(command: AnyCommand, _g: Group | None, soft: SoftState, decision: Decision) -> Decision:
    if isinstance(command, Heartbeat):
        for session in soft.sessions.values():
            session.longest_silence_ms += 1
    return decision


# ---- commands ----------------------------------------------------------------------------------


def _another_id(
    command: AnyCommand, group: Group | None, soft: SoftState, now: Now, settings: GroupSettings
) -> Decision:
    """A repeated join is taken for another member's."""
    members = group.members if group is not None else {}
    if (
        isinstance(command, JoinGroup)
        and command.member_id == UNKNOWN_MEMBER_ID
        and command.proposed_member_id in members
    ):
        command = replace(command, proposed_member_id=MemberId(f"{command.proposed_member_id}+"))
    return decide(command, group, soft, now, settings)


def _expires_the_parked(
    command: AnyCommand, group: Group | None, soft: SoftState, now: Now, settings: GroupSettings
) -> Decision:
    """A member that waits for a response is considered dead."""
    if isinstance(command, ExpireSession):
        soft = soft.copy()
        soft.parked_joins.pop(command.member_id, None)
        soft.parked_syncs.pop(command.member_id, None)
    return decide(command, group, soft, now, settings)


def _rebalances_after_restart(
    command: AnyCommand, group: Group | None, soft: SoftState, now: Now, settings: GroupSettings
) -> Decision:
    """A static member's restart is absorbed, and the group rebalances anyway."""
    decision = decide(command, group, soft, now, settings)
    if decision.group is None or decision.group.state is not GroupState.STABLE:
        return decision
    if not any(isinstance(event, StaticMemberReplaced) for event in decision.events):
        return decision
    crowded = replace(settings, max_size=0)
    more = decide(CheckCapacity(group_id=GROUP_ID), decision.group, decision.soft, now, crowded)
    return replace(more, events=decision.events + more.events, replies=decision.replies + more.replies)


def _forgets_the_join_timer(_group: Group, soft: SoftState, _now_ms: int) -> None:
    soft.join_deadline_ms = None


def _forgets_the_sync_timer(_group: Group, soft: SoftState, _now_ms: int) -> None:
    soft.sync_deadline_ms = None


def _has_sessions_end_now(_group: Group, soft: SoftState, now_ms: int) -> None:
    for session in soft.sessions.values():
        session.deadline_ms = now_ms


BROKEN: dict[str, tuple[int, Rules]] = {
    "leads under its old id": (1, _after(leads_under_its_old_id)),
    "lets the fenced heartbeat": (2, _after(lets_the_fenced_heartbeat)),
    "gives all the same": (3, _after(gives_all_the_same)),
    "tells everybody that it leads": (3, _after(names_every_member_as_leader)),
    "keeps older assignments": (3, _after(keeps_older_assignments)),
    "keeps the generation": (4, _after(keeps_the_generation)),
    "never ends the join phase": (5, _after(never_ends_the_join_phase)),
    "answers what is not stored": (6, _after(answers_what_is_not_stored)),
    "forgets to store a replacement": (7, _after(forgets_to_store_a_replacement)),
    "forgets to store a removal": (7, _after(forgets_to_store_a_removal)),
    "does not fence the parked join": (8, _after(does_not_fence_the_parked_join)),
    "does not feed the session": (9, _after(does_not_feed_the_session)),
    "expires the parked": (9, Rules(decide=_expires_the_parked)),
    "has sessions end after a takeover": (9, _resuming(_has_sessions_end_now)),
    "keeps the old id in pending_syncs": (10, _after(keeps_the_old_id_in_unsynced)),
    "forgets the join timer after a takeover": (10, _resuming(_forgets_the_join_timer)),
    "forgets the sync timer after a takeover": (10, _resuming(_forgets_the_sync_timer)),
    "changes what it was given": (11, _after(changes_what_it_was_given)),
    "puts off the end for who comes": (12, _after(extends_the_phase_for_each_join)),
    "takes a repetition for somebody else": (13, Rules(decide=_another_id)),
    "rebalances after a restart": (14, Rules(decide=_rebalances_after_restart)),
    "blames static members for not rejoining": (15, _after(blames_static_members_for_not_rejoining)),
    "keeps who did not rejoin": (16, _after(keeps_members_that_did_not_rejoin)),
    "does not look who is there": (17, _after(ignores_present_members)),
}
"""Broken rules by their fault: the number of the invariant that does not hold, and the rules."""
