"""The other processes and their partitions, for the status of this one."""

from collections.abc import Iterable

from muster.coordinator.cluster import Cluster
from muster.coordinator.observability.status import ElsewhereStatus, LinksStatus, LinkStatus, PeerStatus
from muster.coordinator.peers.link.peer_links import LinkState
from muster.coordinator.peers.sharing import Peer


def peers_status(states: Iterable[tuple[Peer, bool]]) -> list[PeerStatus]:
    """Return the other processes by node id."""
    found = [
        PeerStatus(node_id=peer.node.node_id, address=f"{peer.node.host}:{peer.node.port}", connected=is_connected)
        for peer, is_connected in states
    ]
    return sorted(found, key=lambda each: each.node_id)


def elsewhere_status(cluster: Cluster) -> list[ElsewhereStatus]:
    """Return the partitions that other processes own, as published to clients."""
    return [
        ElsewhereStatus(partition=number, node_id=owner.node_id, address=f"{owner.host}:{owner.port}")
        for number, owner in enumerate(cluster.owners or ())
        if owner is not None and owner.node_id != cluster.node.node_id
    ]


def links_status(states: Iterable[LinkState], lost_ms: int) -> LinksStatus:
    """Return the connections on which requests are forwarded, and how long no owner was reachable."""
    return LinksStatus(
        to=[
            LinkStatus(
                node_id=each.node.node_id,
                address=f"{each.node.host}:{each.node.port}",
                reached=each.is_reached,
                error=each.error,
            )
            for each in states
        ],
        no_owner_reached_ms=lost_ms,
    )
