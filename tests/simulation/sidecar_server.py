"""A whole `muster serve --upstream` in a simulated world, in front of a simulated Kafka, with other processes of its
log.

It is the real assembly (sidecar/serve), on the world's clocks and sockets; it also notes which owner gave each answer
that is passed on. Frontend, links, owner, shadows and the ownership group are Muster's own; they reach each other and
the broker through the simulated network. Kafka is the broker of kafka.py: a client's commit goes to its frontend, from
there to the owner, back to the frontend, and on the client's own connection to the broker, which accepts it only under
the shadow's generation.
"""

from contextlib import AsyncExitStack
from functools import partial
from typing import cast

from muster.coordinator.cluster import Node
from muster.coordinator.net.kept_sockets import KeptSockets
from muster.coordinator.partition_sharing import PartitionSharing
from muster.coordinator.peers.link.peer_links import Received
from muster.coordinator.peers.link.peer_messages import Answered, AnyMessage, Delegated
from muster.coordinator.sidecar.forwarding.assembly import Forwarding
from muster.coordinator.sidecar.group_parts import GroupParts
from muster.coordinator.sidecar.groups.owned_groups import ListOwned
from muster.coordinator.sidecar.serve import _Sidecar
from tests.simulation.muster_server import MusterServer
from tests.simulation.network import Wire


class SidecarServer(MusterServer):
    """See the module."""

    async def _start(self, stack: AsyncExitStack) -> None:
        sidecar = _Simulated(self.settings, stack, KeptSockets(), self.give_up)
        sidecar.server = self
        await sidecar.begin()


class _Simulated(_Sidecar):
    """The parts of the sidecar; its clocks are those of its loop (stand_ins.py)."""

    server: MusterServer

    async def begin(self) -> None:
        """Like `start`, without the machine: metrics, files, certificates."""
        self.stack.push_async_callback(self.link.close)
        await self.upstream._until_answered(self.link.open)
        await self._assemble(self.server.new_log(self.server.surroundings.topics.events))

    def _forwarding(self, sharing: PartitionSharing, parts: GroupParts, list_own: ListOwned) -> Forwarding:
        self.server.runtime = parts.runtime
        forwarding = super()._forwarding(sharing, parts, list_own)
        forwarding._links._received = partial(_noting, forwarding, forwarding._links._received)
        return forwarding


def _noting(forwarding: Forwarding, received: Received, node: Node, message: AnyMessage) -> None:
    """Note on the client's connection when the answer left its owner, and which owner that was."""
    if isinstance(message, Answered | Delegated):
        client, _ = forwarding._owners._by_number.get(message.connection, (None, None))
        if client is not None and client._transport is not None:
            link = forwarding._links._ready[node]
            cast("Wire", client._transport).passes_on(cast("Wire", link._transport).departed)
    received(node, message)
