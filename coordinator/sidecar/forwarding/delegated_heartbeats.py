"""Delegated heartbeats: the owner of a group lets this process answer them, until the group changes.

Keeps what is delegated and the leases behind it, and reports to the owners which members sent heartbeats.

    delegated  when the owner answers a heartbeat, it lets this process answer equal ones on the same connection
    revoked    the group has changed: the next heartbeat is forwarded. If the link hangs just then, the lease ends it
    leases     this process answers only while the owner itself could, under the owner's lease of the partition. The
               owner returns the remaining time with each report, and is asked every eighth of a lease. So the next
               owner, which waits for the old lease to expire, also waits until this process has stopped answering
    reports    heartbeats are reported to the owner within REPORT_WITHIN_S, and before any other request is forwarded
               to it. Reports that the owner may have missed when the link broke are sent again when it is reachable,
               since the members have had their responses
"""

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final

import msgspec

from muster.coordinator.cluster import Node
from muster.coordinator.peers.link.peer_messages import (
    AnyMessage,
    Delegated,
    HeartbeatReport,
    Leases,
    ReportedHeartbeat,
)
from muster.coordinator.runtime.partition.answer_lease import AnswerLease
from muster.coordinator.sidecar.forwarding.paced import Paced
from muster.coordinator.sidecar.relay.client_side import ClientSide
from muster.events.ids import GroupId, MemberId

REPORT_WITHIN_S: Final = 0.05
REPORTS_PER_LEASE: Final = 8
REPORTED_AT_ONCE: Final = 200
"""Members in one message. It takes at most about a kilobyte, so it is sent whole and in order (peer_connection.py)."""

REPORTS_KEPT_S: Final = 30.0
"""How long reports for an unreachable process are kept; by then, the sessions have been restarted."""


class DelegatedGroup(msgspec.Struct, eq=False):
    """A group whose heartbeats are delegated. `is_valid`: False once they are revoked."""

    lease: AnswerLease
    is_valid: bool = True


class DelegatedTicket(msgspec.Struct, eq=False):
    """A `HeartbeatTicket` from the owner; `frame`, `connection`: of the request, as the owner knows them.

    `until_ms`, `last_seen_ms`: monotonic.
    """

    group: DelegatedGroup
    client: ClientSide
    connection: int
    frame: bytes
    until_ms: int
    note: Callable[["DelegatedTicket"], None]
    last_seen_ms: int = 0
    is_noted: bool = False

    def accept(self, now_ms: int) -> bool:
        group = self.group
        if now_ms >= self.until_ms or not group.is_valid:
            return False
        lease = group.lease
        if lease.reading_ms is not now_ms and not lease.covers_at(now_ms):
            return False
        self.last_seen_ms = now_ms
        if not self.is_noted:
            self.note(self)
        return True


class _Owner:
    """The heartbeats that one owner has delegated, and those to report to it."""

    def __init__(self, delegated: "DelegatedHeartbeats", node: Node) -> None:
        self.groups: dict[str, DelegatedGroup] = {}
        self._delegated = delegated
        self._node = node
        self._leases: dict[int, AnswerLease] = {}
        self._noted: list[DelegatedTicket] = []
        self._unconfirmed: deque[tuple[int, list[DelegatedTicket]]] = deque()
        """The members of each message that it has not confirmed, with the send time by the boot clock."""
        self._report_timer: asyncio.TimerHandle | None = None
        self._lease_timer: asyncio.TimerHandle | None = None

    def lease_of(self, partition: int) -> AnswerLease:
        lease = self._leases.get(partition)
        if lease is None:
            lease = self._leases[partition] = AnswerLease(self._delegated.lease_ms, self._delegated.boot_ms)
        return lease

    def note(self, ticket: DelegatedTicket) -> None:
        ticket.is_noted = True
        self._noted.append(ticket)
        if self._report_timer is None:
            self._report_timer = asyncio.get_running_loop().call_later(REPORT_WITHIN_S, self.report)

    def report(self) -> None:
        """Report the heartbeats since the last report, if any."""
        if self._noted:
            self._send_report()

    def keep_requesting_leases(self) -> None:
        """Ask for the leases now, and periodically while anything is delegated."""
        if self._lease_timer is None:
            self._send_report()
            self._lease_timer = asyncio.get_running_loop().call_later(
                self._delegated.lease_request_interval_s, self._request_again
            )

    def _request_again(self) -> None:
        self._lease_timer = None
        if self.groups:
            self.keep_requesting_leases()

    def _send_report(self) -> None:
        if self._report_timer is not None:
            self._report_timer.cancel()
            self._report_timer = None
        noted, self._noted = self._noted, []
        now_ms, sent_ms = self._delegated.monotonic_ms(), self._delegated.boot_ms()
        members = []
        for ticket in noted:
            ticket.is_noted = False
            members.append(ReportedHeartbeat(ticket.connection, ticket.frame, max(0, now_ms - ticket.last_seen_ms)))
        for first in range(0, max(1, len(members)), REPORTED_AT_ONCE):
            some = slice(first, first + REPORTED_AT_ONCE)
            self._delegated.send(self._node, HeartbeatReport(sent_ms, members[some]))
            self._unconfirmed.append((sent_ms, noted[some]))

    def on_leases(self, leases: Leases) -> None:
        """Process the owner's response to a report, with its leases. It answers each message, in order."""
        if self._unconfirmed and self._unconfirmed[0][0] == leases.sent_ms:
            self._unconfirmed.popleft()
        lease_ms = self._delegated.lease_ms
        for partition, left_ms in leases.left_ms.items():
            self.lease_of(partition).proven(leases.sent_ms + left_ms - lease_ms)

    def end(self) -> list[DelegatedTicket]:
        """Answer no more heartbeats; return the heartbeats that the owner may not have received."""
        for timer in (self._report_timer, self._lease_timer):
            if timer is not None:
                timer.cancel()
        for lease in self._leases.values():
            lease.end()
        unreported = [ticket for _, tickets in self._unconfirmed for ticket in tickets] + self._noted
        return list(dict.fromkeys(unreported))


class DelegatedHeartbeats:
    """Heartbeats that this process answers. `send` sends an owner a message; `number_at` returns a client's number at
    an owner.
    """

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
        self.lease_request_interval_s = lease_ms / REPORTS_PER_LEASE / 1_000
        self.boot_ms = boot_ms
        self.monotonic_ms = monotonic_ms
        self._number_at = number_at
        self._partition_of = partition_of
        self._paced = paced
        self._owners: dict[int, _Owner] = {}
        self._unreported: dict[int, deque[DelegatedTicket]] = {}
        """The unreported heartbeats of unreachable owners, by node id."""

    def keep(self, node: Node, client: ClientSide, frame: bytes, sent_ms: int, delegated: Delegated) -> None:
        """Answer equal heartbeats of the client from now on. `sent_ms`: when this one was forwarded (monotonic)."""
        group_id = GroupId(delegated.group_id)
        partition = self._partition_of(group_id)
        if partition is None:
            return
        owner = self._at(node)
        group = owner.groups.get(group_id)
        if group is None:
            group = owner.groups[group_id] = DelegatedGroup(owner.lease_of(partition))
        ticket = DelegatedTicket(
            group=group,
            client=client,
            connection=delegated.connection,
            frame=frame,
            until_ms=sent_ms + delegated.valid_ms,
            note=owner.note,
        )
        client.heartbeats.keep(frame, group_id, MemberId(delegated.member_id), ticket)
        owner.keep_requesting_leases()

    def revoke(self, node: Node, group_id: str) -> None:
        """Forward heartbeats of the group's members again."""
        owner = self._owners.get(node.node_id)
        group = None if owner is None else owner.groups.pop(group_id, None)
        if group is not None:
            group.is_valid = False

    def on_leases(self, node: Node, leases: Leases) -> None:
        """Process an owner's response to a report."""
        owner = self._owners.get(node.node_id)
        if owner is not None:
            owner.on_leases(leases)

    def report(self, node: Node) -> None:
        """Report heartbeats to an owner before something else is sent to it."""
        owner = self._owners.get(node.node_id)
        if owner is not None:
            owner.report()

    def report_all(self) -> None:
        """Report to all owners: this process stops."""
        for owner in self._owners.values():
            owner.report()

    def on_unreachable(self, node: Node) -> None:
        """Answer no more heartbeats for an owner that has become unreachable."""
        owner = self._owners.pop(node.node_id, None)
        if owner is None:
            return
        unreported = deque([*self._unreported.get(node.node_id, ()), *owner.end()])
        self._unreported[node.node_id] = unreported

        def forget() -> None:
            if self._unreported.get(node.node_id) is unreported:
                del self._unreported[node.node_id]

        asyncio.get_running_loop().call_later(REPORTS_KEPT_S, forget)

    def on_reachable(self, node: Node) -> None:
        """Send a process that is reachable again the reports that it may have missed, a few at a time."""
        unreported = self._unreported.get(node.node_id)
        if not unreported:
            return
        owner = self._at(node)

        def note_next() -> None:
            if unreported and self._owners.get(node.node_id) is owner:
                ticket = unreported.popleft()
                if ticket.client.is_open():
                    ticket.connection = self._number_at(node, ticket.client)
                    owner.note(ticket)

        self._paced.call([*[note_next] * len(unreported), partial(self.report, node)])

    def _at(self, node: Node) -> _Owner:
        owner = self._owners.get(node.node_id)
        if owner is None:
            owner = self._owners[node.node_id] = _Owner(self, node)
        return owner
