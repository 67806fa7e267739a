"""The simulated Kafka: a broker that coordinates groups, and keeps the offsets that come through sidecars.

It is a standalone Muster with its own topics, since Muster's group rules are Kafka's. The event log is not in it
(log_broker.py), so each of the two can fail alone.
"""

from tests.simulation.muster_server import KAFKA, MusterServer, Surroundings, Topics
from tests.simulation.network import Network
from tests.simulation.remote_log import NO_FAULTS
from tests.simulation.standalone_server import StandaloneServer
from tests.simulation.world import World

LOOK_S = 0.1


class Kafka:
    """See the module. When it is started again, it knows its groups."""

    def __init__(self, world: World, network: Network) -> None:
        self.topics = Topics(world, 1)
        self._surroundings = Surroundings(
            world=world,
            network=network,
            topics=self.topics,
            faults=NO_FAULTS,
            claim_renewal_ms=None,
            answer_lease_ms=None,
        )
        self.broker = self._started()
        self._world = world
        self._serves_since_s = float("inf")
        world.after(0, self._look)

    def serves_since_s(self) -> float:
        """Since when it serves its groups, and is not loading them."""
        return self._serves_since_s if self.broker.serves() else float("inf")

    def _look(self) -> None:
        if not self.broker.serves() or not self.broker.is_running:
            self._serves_since_s = self._world.now_s + LOOK_S
        self._world.after(LOOK_S, self._look)

    def _started(self) -> MusterServer:
        return StandaloneServer(self._surroundings, KAFKA, host=KAFKA, address="10.1.0.1")

    def supervise(self) -> None:
        """Start it again, if it is gone."""
        if not self.broker.is_running:
            self.broker = self._started()

    def kill(self) -> None:
        """Like SIGKILL."""
        self.broker.kill()
