"""Whether this process reaches an owner of any group, and since when it reaches none.

What belongs here: when that is no takeover any more, and what /readyz says then. What it must not know: connections.

Requests for groups whose owner is not reached are answered with COORDINATOR_NOT_AVAILABLE. While one owner is reached
the process is ready: it serves the groups of that one, and another process is no better off. When none is, it may be
cut off, or have another secret, and other processes may serve. That is no reason to be taken out for as long as a
takeover lasts, or all processes would be at once; a process that has never reached an owner is not ready yet.
"""

from collections.abc import Callable, Sequence
from typing import Final, Protocol

from muster.coordinator.cluster import Cluster, Node
from muster.coordinator.peers.link.links import LinkState

TAKEOVER_MS: Final = 5_000
"""How long a takeover lasts at most, after the session of the owner before is over."""


class Links(Protocol):
    """The connections to the other processes."""

    def is_linked(self, node: Node) -> bool:
        """Whether there is a connection to the process."""

    def states(self) -> Sequence[LinkState]:
        """The other processes that own partitions, and whether each is reached. Thread-safe."""


class OwnersReach:
    """See the module. `look` is to be called when owners or connections change; the properties are thread-safe."""

    def __init__(
        self, cluster: Callable[[], Cluster], links: Links, *, monotonic_ms: Callable[[], int], takeover_ms: int
    ) -> None:
        self._cluster = cluster
        self._links = links
        self._monotonic_ms = monotonic_ms
        self._takeover_ms = takeover_ms
        self._was_reached = False
        self._lost_since_ms: int | None = None

    def look(self) -> None:
        """Look whether the owner of any partition is reached; this process's own ones are."""
        cluster = self._cluster()
        if any(
            owner is not None and (owner.node_id == cluster.node.node_id or self._links.is_linked(owner))
            for owner in cluster.owners or ()
        ):
            self._was_reached, self._lost_since_ms = True, None
        elif self._lost_since_ms is None:
            self._lost_since_ms = self._monotonic_ms()

    @property
    def lost_ms(self) -> int:
        """For how long no owner was reached; 0 while one is."""
        since_ms = self._lost_since_ms
        return 0 if since_ms is None else self._monotonic_ms() - since_ms

    @property
    def not_ready(self) -> str | None:
        """The message of /readyz; None while an owner is reached, or may be again soon."""
        if self._lost_since_ms is None or (self._was_reached and self.lost_ms <= self._takeover_ms):
            return None
        for_s = f"for {self.lost_ms // 1000} s this process has reached no owner of a partition"
        tried = [
            f"node {each.node.node_id} at {each.node.host}:{each.node.port}: {each.error or 'it has not answered yet'}"
            for each in self._links.states()
        ]
        return f"{for_s}; {'; '.join(tried) or 'no process owns any: start one with --role owner or both'}"
