"""Delegated heartbeats: the owner of a group lets this process answer them, until the group changes.

Keeps the grants and the leases behind them, and reports to the owners which members sent heartbeats.

    granted    when the owner answers a heartbeat, it lets this process answer equal ones on the same connection
    revoked    the group has changed: the next heartbeat is forwarded. If the link hangs just then, the lease ends it
    leases     this process answers only while the owner itself could, under the owner's lease of the partition. The
               owner returns the remaining time with each report, and is asked every eighth of a lease. So the next
               owner, which waits for the old lease to expire, also waits until this process has stopped answering
    heard      heartbeats are reported to the owner within HEARD_S, and before any other request is forwarded to it.
               Reports that the owner may have missed when the link broke are sent again when it is reachable, since
               the members have had their responses
"""

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final

import msgspec

from muster.coordinator.cluster import Node
from muster.coordinator.peers.link.peer_messages import AnyMessage, Granted, HeardMember, HeardMembers, Leases
from muster.coordinator.runtime.partition.answer_lease import AnswerLease
from muster.coordinator.sidecar.forwarding.paced import Paced
from muster.coordinator.sidecar.relay.client_side import ClientSide
from muster.events.ids import GroupId, MemberId

HEARD_S: Final = 0.05
ASKED_PER_LEASE: Final = 8
HEARD_AT_ONCE: Final = 200
"""Members in one message: about a kilobyte at most, so it is sent whole and in order (see peer_connection.py)."""

TOLD_AGAIN_S: Final = 30.0
"""How long reports for an unreachable process are kept; by then, the sessions have been restarted."""


class GrantedGroup(msgspec.Struct, eq=False):
    """A group with granted heartbeats. `is_valid`: False once they are revoked."""

    lease: AnswerLease
    is_valid: bool = True


class GrantedTicket(msgspec.Struct, eq=False):
    """A `HeartbeatTicket` granted by the owner; `frame`, `connection`: of the request, as the owner knows them.

    `until_ms`, `heard_ms`: monotonic.
    """

    group: GrantedGroup
    client: ClientSide
    connection: int
    frame: bytes
    until_ms: int
    note: Callable[["GrantedTicket"], None]
    heard_ms: int = 0
    is_noted: bool = False

    def accept(self, now_ms: int) -> bool:
        group = self.group
        if now_ms >= self.until_ms or not group.is_valid:
            return False
        lease = group.lease
        if lease.reading_ms is not now_ms and not lease.covers_at(now_ms):
            return False
        self.heard_ms = now_ms
        if not self.is_noted:
            self.note(self)
        return True


class _Owner:
    """One owner's grants, and the heartbeats to report to it."""

    def __init__(self, granted: "GrantedHeartbeats", node: Node) -> None:
        self.groups: dict[str, GrantedGroup] = {}
        self._granted = granted
        self._node = node
        self._leases: dict[int, AnswerLease] = {}
        self._noted: list[GrantedTicket] = []
        self._unconfirmed: deque[tuple[int, list[GrantedTicket]]] = deque()
        """The members of each message that it has not confirmed, with the send time by the boot clock."""
        self._telling: asyncio.TimerHandle | None = None
        self._asking: asyncio.TimerHandle | None = None

    def lease_of(self, partition: int) -> AnswerLease:
        lease = self._leases.get(partition)
        if lease is None:
            lease = self._leases[partition] = AnswerLease(self._granted.lease_ms, self._granted.boot_ms)
        return lease

    def note(self, ticket: GrantedTicket) -> None:
        ticket.is_noted = True
        self._noted.append(ticket)
        if self._telling is None:
            self._telling = asyncio.get_running_loop().call_later(HEARD_S, self.tell)

    def tell(self) -> None:
        """Report the heartbeats since the last report, if any."""
        if self._noted:
            self._tell()

    def keep_asking(self) -> None:
        """Ask for the leases now, and periodically while anything is granted."""
        if self._asking is None:
            self._tell()
            self._asking = asyncio.get_running_loop().call_later(self._granted.ask_each_s, self._ask_again)

    def _ask_again(self) -> None:
        self._asking = None
        if self.groups:
            self.keep_asking()

    def _tell(self) -> None:
        if self._telling is not None:
            self._telling.cancel()
            self._telling = None
        noted, self._noted = self._noted, []
        now_ms, sent_ms = self._granted.monotonic_ms(), self._granted.boot_ms()
        members = []
        for ticket in noted:
            ticket.is_noted = False
            members.append(HeardMember(ticket.connection, ticket.frame, max(0, now_ms - ticket.heard_ms)))
        for first in range(0, max(1, len(members)), HEARD_AT_ONCE):
            some = slice(first, first + HEARD_AT_ONCE)
            self._granted.send(self._node, HeardMembers(sent_ms, members[some]))
            self._unconfirmed.append((sent_ms, noted[some]))

    def told(self, leases: Leases) -> None:
        """Process the owner's response to a report, with its leases. It answers each message, in order."""
        if self._unconfirmed and self._unconfirmed[0][0] == leases.sent_ms:
            self._unconfirmed.popleft()
        lease_ms = self._granted.lease_ms
        for partition, left_ms in leases.left_ms.items():
            self.lease_of(partition).proven(leases.sent_ms + left_ms - lease_ms)

    def end(self) -> list[GrantedTicket]:
        """End all grants; return the heartbeats that the owner may not have received."""
        for timer in (self._telling, self._asking):
            if timer is not None:
                timer.cancel()
        for lease in self._leases.values():
            lease.end()
        untold = [ticket for _, tickets in self._unconfirmed for ticket in tickets] + self._noted
        return list(dict.fromkeys(untold))


class GrantedHeartbeats:
    """Heartbeats that this process answers. `send` sends an owner a message; `number_at`: a client's number at it."""

    def __init__(
        self,
        *,
        send: Callable[[Node, AnyMessage], None],
        number_at: Callable[[Node, ClientSide], int],
        partition_of: Callable[[GroupId], int | None],
        paced: Paced,
        lease_ms: int,
        boot_ms: Callable[[], int],
        monotonic_ms: Callable[[], int],
    ) -> None:
        self.send = send
        self.lease_ms = lease_ms
        self.ask_each_s = lease_ms / ASKED_PER_LEASE / 1_000
        self.boot_ms = boot_ms
        self.monotonic_ms = monotonic_ms
        self._number_at = number_at
        self._partition_of = partition_of
        self._paced = paced
        self._owners: dict[int, _Owner] = {}
        self._untold: dict[int, deque[GrantedTicket]] = {}
        """The unreported heartbeats of unreachable owners, by node id."""

    def keep(self, node: Node, client: ClientSide, frame: bytes, sent_ms: int, granted: Granted) -> None:
        """Answer equal heartbeats of the client from now on. `sent_ms`: when this one was forwarded (monotonic)."""
        group_id = GroupId(granted.group_id)
        partition = self._partition_of(group_id)
        if partition is None:
            return
        owner = self._at(node)
        group = owner.groups.get(group_id)
        if group is None:
            group = owner.groups[group_id] = GrantedGroup(owner.lease_of(partition))
        ticket = GrantedTicket(
            group=group,
            client=client,
            connection=granted.connection,
            frame=frame,
            until_ms=sent_ms + granted.valid_ms,
            note=owner.note,
        )
        client.heartbeats.keep(frame, group_id, MemberId(granted.member_id), ticket)
        owner.keep_asking()

    def revoked(self, node: Node, group_id: str) -> None:
        """Forward heartbeats of the group's members again."""
        owner = self._owners.get(node.node_id)
        group = None if owner is None else owner.groups.pop(group_id, None)
        if group is not None:
            group.is_valid = False

    def told(self, node: Node, leases: Leases) -> None:
        """Process an owner's response to a report."""
        owner = self._owners.get(node.node_id)
        if owner is not None:
            owner.told(leases)

    def tell(self, node: Node) -> None:
        """Report heartbeats to an owner before something else is sent to it."""
        owner = self._owners.get(node.node_id)
        if owner is not None:
            owner.tell()

    def tell_all(self) -> None:
        """Report to all owners: this process stops."""
        for owner in self._owners.values():
            owner.tell()

    def lost(self, node: Node) -> None:
        """End the grants of an owner that has become unreachable."""
        owner = self._owners.pop(node.node_id, None)
        if owner is None:
            return
        untold = deque([*self._untold.get(node.node_id, ()), *owner.end()])
        self._untold[node.node_id] = untold

        def forget() -> None:
            if self._untold.get(node.node_id) is untold:
                del self._untold[node.node_id]

        asyncio.get_running_loop().call_later(TOLD_AGAIN_S, forget)

    def reached(self, node: Node) -> None:
        """Send a process that is reachable again the reports that it may have missed, a few at a time."""
        untold = self._untold.get(node.node_id)
        if not untold:
            return
        owner = self._at(node)

        def note_next() -> None:
            if untold and self._owners.get(node.node_id) is owner:
                ticket = untold.popleft()
                if ticket.client.is_open():
                    ticket.connection = self._number_at(node, ticket.client)
                    owner.note(ticket)

        self._paced.call([*[note_next] * len(untold), partial(self.tell, node)])

    def _at(self, node: Node) -> _Owner:
        owner = self._owners.get(node.node_id)
        if owner is None:
            owner = self._owners[node.node_id] = _Owner(self, node)
        return owner
