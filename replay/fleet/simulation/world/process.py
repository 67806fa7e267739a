"""A consumer process: what it sends, when, and how it handles the responses.

It behaves like a client of one of four families, and knows nothing of the group or the scenario. It learns of a
rebalance from a heartbeat (every 3 s), rejoins at its next poll, syncs, and heartbeats again. `story` is the incident
to which its own actions are attributed.

    java                        keeps its member id through an outage; gives reasons
    librdkafka                  forgets its id after a session timeout without a response, and joins as a new member
    kafka-python, aiokafka      like java, without reasons
"""

import math
from collections.abc import Callable
from random import Random
from typing import Any, Protocol

from kio.schema.errors import ErrorCode

from muster.coordinator.group.commands import AnyRequest, Caller, Heartbeat, SyncGroup
from muster.coordinator.group.connections import ConnectionRecord
from muster.coordinator.group.outcomes import HeartbeatOutcome, JoinGroupOutcome, SyncGroupOutcome
from muster.events.connection import ConnectionEnd
from muster.events.consumer_protocol import assigned_partitions
from muster.events.ids import UNKNOWN_MEMBER_ID, MemberId
from muster.replay.fleet.simulation.world import client
from muster.replay.fleet.simulation.world.assignors import (
    COOPERATIVE,
    Owned,
    Subscriber,
    as_assignment,
    assign,
)
from muster.replay.fleet.simulation.world.client import Setup
from muster.replay.fleet.simulation.world.rules import Rules
from muster.replay.fleet.simulation.world.truth import Story

NEVER = math.inf


class Surroundings(Protocol):
    """The part of the world (`world.py`) that a process uses."""

    rules: Rules
    random: Random
    partitions: dict[str, int]

    @property
    def now_ms(self) -> int: ...

    @property
    def is_away(self) -> bool: ...

    @property
    def story_of_last_rebalance(self) -> Story: ...

    def process_of(self, member_id: str) -> "Process": ...

    def new_member_id(self, process: "Process") -> MemberId: ...

    def new_connection(self) -> ConnectionRecord: ...

    def ended(self, process: "Process") -> None: ...

    def later(self, delay_ms: int, process: "Process", do: Callable[[], None]) -> None: ...

    def ask(self, process: "Process", make: Callable[[int], AnyRequest], learn: Callable[[Any], None]) -> bool: ...


class Process:
    """A consumer process; see the module."""

    def __init__(self, world: Surroundings, setup: Setup, story: Story) -> None:
        self.world = world
        self.setup = setup
        self.story = story
        self.motive: Story | None = None
        self.connection = world.new_connection()
        self.alive = True
        self.cut = False
        self.frozen = False
        self.backlog: list[Callable[[], None]] = []
        self.member_id = UNKNOWN_MEMBER_ID
        self.generation_id = -1
        self.came_ms = world.now_ms
        """When it was admitted under its current member id."""
        self.owned: Owned = frozenset()
        self.next_heartbeat_ms = NEVER
        self.last_heard_ms = world.now_ms
        """When it last got a response from the coordinator."""
        self.is_joining = False
        self.is_stalled = False
        self.on_fenced: Callable[[], None] | None = None
        self.life = 0
        """Incremented when it dies or forgets its id: whatever was in flight for it is then ignored."""
        self.slow_ms = 0
        """How long it stays busy without polling when it next learns of a rebalance; applies once."""
        self.assign_slow_ms = 0
        """How long its assignor takes; applies once."""
        self._busy_until_ms = 0
        self.uses_its_id = True

    @property
    def name(self) -> str:
        return self.setup.name

    @property
    def is_static(self) -> bool:
        return self.setup.instance is not None

    @property
    def is_member(self) -> bool:
        group = self.world.rules.group
        return group is not None and self.member_id in group.members

    @property
    def is_calm(self) -> bool:
        """True if its heartbeats have no consequence as long as the group is stable."""
        group = self.world.rules.group
        return (
            self.next_heartbeat_ms != NEVER
            and self.setup.heartbeat_ms < self.setup.session_ms
            and not self.cut
            and group is not None
            and self.generation_id == group.generation_id
            and self.member_id in group.members
        )

    # ---- life -----------------------------------------------------------------------------------

    def die(self, *, with_machine: bool = False) -> None:
        """Die without leaving the group. The connection is closed, unless its machine died or the network is cut."""
        if self.alive:
            self.world.ended(self)
            if not (with_machine or self.cut):
                self.connection.ended(ConnectionEnd.CLOSED, self.world.now_ms)
        self.alive, self.is_joining = False, False
        self.life += 1
        self.next_heartbeat_ms = NEVER

    def close(self, reason: str | None = "the consumer is being closed") -> None:
        """Shut down. A dynamic member leaves; a static one sends nothing, whatever its library (KIP-345)."""
        if not self.is_static and self.member_id != UNKNOWN_MEMBER_ID:
            self.leave(reason)
        self.die()

    def leave(self, reason: str | None) -> None:
        setup, rules, member_id = self.setup, self.world.rules, self.member_id
        self.world.ask(
            self,
            lambda request_id: client.leave_group(
                setup, rules, request_id, member_id=member_id, reason=reason, connection=self.connection
            ),
            lambda _: None,
        )

    def stop_polling(self) -> None:
        """Leave at the poll timeout, as clients do on their own; a static member falls silent."""
        if not self.is_static:
            self.leave("consumer poll timeout has expired.")
        self.go_away()

    def unsubscribe(self) -> None:
        """Leave the group until `poll_again`. librdkafka sends LeaveGroup for static members, too."""
        self.leave("the consumer unsubscribed from all topics")
        self.go_away()

    def go_away(self) -> None:
        """Stay out of the group until `poll_again`."""
        self.is_stalled = True
        self._forget()

    def poll_again(self) -> None:
        self.is_stalled = False
        if self.alive:
            self.join()

    def freeze(self) -> None:
        """Pause the process (SIGSTOP)."""
        self.frozen, self.next_heartbeat_ms = True, NEVER

    def thaw(self) -> None:
        self.frozen = False
        backlog, self.backlog = self.backlog, []
        for do in backlog:
            do()
        if self.alive and not self.is_joining:
            self.reconnect()

    def reconnect(self) -> None:
        """Resume after the coordinator is reachable again; earlier requests are lost."""
        if self.is_joining or self.member_id == UNKNOWN_MEMBER_ID:
            self.join()
        else:
            self.heartbeat()

    def lose_session(self) -> None:
        """Handle a session timeout without any response: librdkafka forgets its member id, the others keep theirs."""
        silent_ms = self.world.now_ms - self.last_heard_ms
        is_unheard = self.cut or self.world.is_away or self.frozen
        if self.setup.library == "librdkafka" and is_unheard and silent_ms >= self.setup.session_ms:
            self._forget()

    # ---- requests -------------------------------------------------------------------------------

    def heartbeat(self) -> None:
        self.next_heartbeat_ms = self.world.now_ms + self.setup.heartbeat_ms
        is_sent = self.world.ask(
            self,
            lambda request_id: Heartbeat(
                group_id=self.world.rules.group_id,
                caller=self._caller((client.HEARTBEAT, 4), request_id),
                member_id=self.member_id,
                group_instance_id=client.instance_of(self.setup),
                generation_id=self.generation_id,
            ),
            self._heartbeat_answered,
        )
        if not is_sent or self.world.is_away:
            self.next_heartbeat_ms = NEVER

    def join(self, reason: str | None = None) -> None:
        """Send JoinGroup under its current id, and nothing else until the response arrives."""
        if self.is_stalled:
            return
        self.is_joining = True
        self.next_heartbeat_ms = NEVER
        self.world.ask(
            self,
            lambda request_id: client.join_group(
                self.setup,
                self.world.rules,
                request_id,
                member_id=self.member_id,
                proposed_member_id=self.world.new_member_id(self),
                owned=self.owned,
                reason=reason,
                connection=self.connection,
            ),
            self._joined,
        )

    def _caller(self, api: tuple[int, int], request_id: int) -> Caller:
        return client.caller(self.setup, self.world.rules, api, request_id, self.connection)

    def rejoin_soon(self, reason: str | None = None, *, motive: Story | None = None) -> None:
        """Rejoin at the next poll, and heartbeat until then."""
        if self.is_joining:
            return
        self.is_joining = True
        self.motive = motive
        if self.slow_ms:
            self._busy_until_ms, self.slow_ms = self.world.now_ms + self.slow_ms, 0
        poll_ms = self.world.random.randint(5, max(6, self.setup.poll_ms))
        after_ms = max(poll_ms, self._busy_until_ms - self.world.now_ms)
        self.world.later(after_ms, self, lambda: self.join(reason))

    def sync(self, shares: dict[MemberId, bytes]) -> None:
        self.world.ask(
            self,
            lambda request_id: SyncGroup(
                group_id=self.world.rules.group_id,
                caller=self._caller((client.SYNC, 5), request_id),
                member_id=self.member_id,
                group_instance_id=client.instance_of(self.setup),
                generation_id=self.generation_id,
                protocol_type=None,
                protocol_name=None,
                assignments=tuple(shares.items()),
            ),
            self._synced,
        )

    # ---- answers --------------------------------------------------------------------------------

    def _heartbeat_answered(self, outcome: HeartbeatOutcome) -> None:
        if self.member_id == UNKNOWN_MEMBER_ID or self.is_stalled:
            return
        if self.next_heartbeat_ms == NEVER:
            self.next_heartbeat_ms = self.world.now_ms + self.setup.heartbeat_ms
        match outcome.error:
            case ErrorCode.none:
                pass
            case ErrorCode.rebalance_in_progress | ErrorCode.illegal_generation:
                self.rejoin_soon(client.REBALANCING)
            case ErrorCode.unknown_member_id:
                self._forget()
                self.rejoin_soon(client.FORGOTTEN)
            case ErrorCode.fenced_instance_id:
                self._fenced()

    def _joined(self, outcome: JoinGroupOutcome) -> None:
        match outcome.error:
            case ErrorCode.member_id_required:
                self.member_id = outcome.member_id
                if self.uses_its_id:
                    self.join(client.NEEDED_ID.format(outcome.member_id))
            case ErrorCode.none:
                self._begin_generation(outcome)
            case ErrorCode.unknown_member_id:
                self._forget()
                self.world.later(100, self, self.join)
            case ErrorCode.rebalance_in_progress | ErrorCode.coordinator_load_in_progress:
                self.world.later(100, self, self.join)
            case ErrorCode.fenced_instance_id:
                self._fenced()
            case _:
                self.die()

    def _begin_generation(self, outcome: JoinGroupOutcome) -> None:
        self.motive = None
        if self.generation_id == -1:
            self.came_ms = self.world.now_ms
        self.member_id, self.generation_id = outcome.member_id, outcome.generation_id
        self.next_heartbeat_ms = self.world.now_ms + self.setup.heartbeat_ms
        if not outcome.members or outcome.skip_assignment:
            self.world.later(self.world.random.randint(1, 15), self, lambda: self.sync({}))
            return
        after_ms, self.assign_slow_ms = self.assign_slow_ms or self.setup.assign_ms, 0
        shares = self._shares(outcome)
        self.world.later(after_ms, self, lambda: self.sync(shares))

    def _shares(self, outcome: JoinGroupOutcome) -> dict[MemberId, bytes]:
        """The assignment that the leader makes; it takes the other members' metadata directly from their processes."""
        subscribers = [
            Subscriber(
                member_id=each.member_id,
                rank=each.group_instance_id or each.member_id,
                topics=self.world.process_of(each.member_id).setup.topics,
                owned=self.world.process_of(each.member_id).owned,
            )
            for each in outcome.members
        ]
        shares = assign(outcome.protocol_name or "range", subscribers, self.world.partitions)
        return {MemberId(member_id): as_assignment(share) for member_id, share in shares.items()}

    def _synced(self, outcome: SyncGroupOutcome) -> None:
        match outcome.error:
            case ErrorCode.none:
                self.is_joining = False
                self._take(frozenset(assigned_partitions(outcome.assignment) or ()), outcome.protocol_name)
            case ErrorCode.rebalance_in_progress | ErrorCode.illegal_generation:
                self.is_joining = False
                self.rejoin_soon()
            case ErrorCode.unknown_member_id:
                self._forget()
                self.join()
            case ErrorCode.fenced_instance_id:
                self._fenced()
            case _:
                self.die()

    def _take(self, share: Owned, protocol_name: str | None) -> None:
        """Take the assigned partitions. A cooperative member that has to revoke some of its partitions rejoins: this
        second round belongs to the story of the first.
        """
        revoked = self.owned - share
        self.owned = share
        if protocol_name == COOPERATIVE and revoked:
            self.rejoin_soon(client.REVOKED, motive=self.world.story_of_last_rebalance)

    def _fenced(self) -> None:
        self.die()
        if self.on_fenced is not None:
            self.on_fenced()

    def _forget(self) -> None:
        self.life += 1
        self.member_id, self.generation_id = UNKNOWN_MEMBER_ID, -1
        self.owned = frozenset()
        self.is_joining = False
        self.next_heartbeat_ms = NEVER
