"""Serves the partitions assigned to this process, and publishes to clients where the others are.

Acts on the group's decisions; `sharing.py` makes them.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Final, Protocol

import msgspec
import structlog

from muster.coordinator.cluster import Cluster, Node
from muster.coordinator.peers.former_members import FormerMembers
from muster.coordinator.peers.ownership_group import OwnershipGroup
from muster.coordinator.peers.peer_watch import EndSeen, PeerWatch
from muster.coordinator.peers.sharing import Candidate, MemberIdentity, ObservedEnd, Peer, Sharing, share
from muster.coordinator.upstream.group_requests import AsMember
from muster.coordinator.upstream.upstream_link import UpstreamLink
from muster.events.ownership import OwnershipEnd

log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)

HANDED_OVER_WITHIN_S: Final = 5.0
CLIENTS_REDIRECTED_S: Final = 3.5
"""How long a stopping process keeps redirecting clients to the new owners: by default heartbeats come every 3 s."""


class Ownership(Protocol):
    """The parts of the runtime that are needed here."""

    def claims(self) -> Mapping[int, int]:
        """The epochs of the claims on the assigned partitions; 0 for one that is being taken over."""

    async def assign(self, numbers: frozenset[int]) -> None:
        """Take over partitions; those that are already assigned stay as they are."""

    async def release(self, numbers: frozenset[int]) -> None:
        """Release partitions for other processes to take over."""


class Sharer:
    """Serves this process's share of the partitions. `publish` receives each change of the cluster that clients see.

    `is_frontend`: this process owns no partitions and only has to know the owners. `peer_watch` watches the other
    processes; the caller closes it. `failed` is called with the error of a watch that fails. `process`: this process's
    name in events. `upstream`: see Candidate.
    """

    def __init__(
        self,
        ownership: Ownership,
        cluster: Callable[[], Cluster],
        publish: Callable[[Cluster], None],
        *,
        link: UpstreamLink,
        who: AsMember,
        process: str,
        partitions: int,
        session_timeout_ms: int,
        monotonic_ms: Callable[[], int],
        wall_ms: Callable[[], int],
        failed: Callable[[Exception], None],
        clients_redirected_s: float = CLIENTS_REDIRECTED_S,
        is_frontend: bool = False,
        upstream: str = "",
    ) -> None:
        self._is_frontend = is_frontend
        self._upstream = upstream
        self._clients_told_s = clients_redirected_s
        self._ownership = ownership
        self._cluster = cluster
        self._publish = publish
        self._who = who
        self._process = process
        self._partitions = partitions
        self._former_members = FormerMembers()
        self._newest: Sharing | None = None
        self._is_new = asyncio.Event()
        self._leaves = False
        self._are_elsewhere = asyncio.Event()
        self.group = OwnershipGroup(
            link,
            who,
            candidate=self._candidate,
            decide=self._decide,
            on_decision=self._on_decision,
            session_timeout_ms=session_timeout_ms,
            monotonic_ms=monotonic_ms,
            upstream=upstream,
        )
        self.peer_watch = PeerWatch(self._peer_ended, wall_ms=wall_ms, failed=failed)

    @property
    def not_ready(self) -> str | None:
        """Human-readable reason why this process does not know its partitions; None if it does."""
        if self._leaves:
            return "stopping"
        if self._newest is not None:
            return None
        return self.group.trouble or "the processes of the event log are sharing its partitions"

    async def serve(self) -> None:
        """Own the partitions that are assigned to this process, forever. Raises the errors of `Runtime.assign`."""
        while True:
            await self._is_new.wait()
            self._is_new.clear()
            assert self._newest is not None
            ours = self._newest.owned_by(self._node.node_id)
            given_up = self._ownership.claims().keys() - ours
            if given_up:
                await self._ownership.release(frozenset(given_up))
                self.group.join_again()  # now they are free
            await self._ownership.assign(ours)

    async def leave(self) -> None:
        """Hand all partitions over to the other processes, if any, and redirect clients for a while.

        Must not be called while `serve` runs, which would take them again.
        """
        self._leaves = True
        if self._is_frontend:  # a frontend has nothing to hand over
            return
        await self._ownership.release(frozenset(self._ownership.claims()))
        self.group.join_again()
        with suppress(TimeoutError):
            async with asyncio.timeout(HANDED_OVER_WITHIN_S):
                await self._are_elsewhere.wait()
        if self._newest is not None and self._newest.nodes:
            await asyncio.sleep(self._clients_told_s)

    def deposed(self, _number: int) -> None:
        """Request a new assignment, because another process has claimed one of our partitions."""
        self.group.join_again()

    def end_of(self, number: int, process: str) -> OwnershipEnd | None:
        """Return why this former owner lost the partition, as far as the ownership group knows; None if unknown."""
        own = MemberIdentity(member_id=self.group.member_id, group_instance_id=self._who.group_instance_id or "")
        return self._former_members.end_of(number, process, own)

    async def _peer_ended(self, peer: Peer, seen: EndSeen) -> None:
        ended = ObservedEnd(
            member_id=peer.member.member_id,
            by=self._process,
            link_lost_ms=seen.link_lost_ms,
            refused_ms=seen.refused_ms,
        )
        self._former_members.note_end(ended)  # before the removal: our next join may come before its response
        if await self.group.remove(peer):
            self._former_members.note_end(msgspec.structs.replace(ended, removed=True))

    @property
    def _node(self) -> Node:
        return self._cluster().node

    def _is_member(self, sharing: Sharing) -> bool:
        """Return whether the other processes know this one by its current member id."""
        member = sharing.members.get(self._node.node_id)
        return member is not None and member.member_id == self.group.member_id

    def _candidate(self, joins: int) -> Candidate:
        return Candidate(
            node=self._node,
            owned=dict(self._ownership.claims()),
            leaves=self._leaves,
            joins=joins,
            is_frontend=self._is_frontend,
            process=self._process,
            ended=self._former_members.unreported,
            upstream=self._upstream,
        )

    def _decide(self, candidates: Sequence[Candidate]) -> Sharing:
        return share(self._partitions, candidates)

    def _on_decision(self, sharing: Sharing) -> None:
        if self._newest is None or self._newest.owners != sharing.owners:
            ours = sharing.owned_by(self._node.node_id)
            nodes = [each.node_id for each in sharing.nodes]
            moving = self._partitions - len(sharing.owners)
            log.info("partitions shared", ours=sorted(ours), of=self._partitions, moving=moving, nodes=nodes)
        self._newest = sharing
        self._former_members.apply(sharing)
        nodes_by_id = {each.node_id: each for each in sharing.nodes}
        if self._leaves:
            if self._node.node_id not in nodes_by_id and len(sharing.owners) in {0, self._partitions}:
                self._are_elsewhere.set()
        elif not (self._is_frontend or nodes_by_id.get(self._node.node_id) == self._node) or not self._is_member(
            sharing
        ):
            self.group.join_again()  # the others know this process as it was before it restarted
        if not self._is_frontend:  # there may be many frontends, and owners suffice to detect each other's end
            self.peer_watch.watch(sharing.peers_of(self._node.node_id))
        owners = [nodes_by_id.get(sharing.owners.get(number, -1)) for number in range(self._partitions)]
        self._publish(self._cluster().shared(sharing.nodes, owners))
        self._is_new.set()
