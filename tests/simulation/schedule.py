"""One schedule: several processes, their clients and their faults, all from one seed; `verdict.py` judges it."""

import itertools
from collections import Counter
from collections.abc import Callable
from random import Random

import msgspec

from muster.coordinator.settings.sidecar import FRONTEND, OWNER
from tests.simulation.client import CLIENTS, Members
from tests.simulation.kafka import Kafka
from tests.simulation.log_broker import LogBroker
from tests.simulation.members import HEARTBEAT_S, SESSION_S, Member
from tests.simulation.muster_server import BOTH, KAFKA, PARTITIONS, MusterServer, Surroundings, Topics
from tests.simulation.network import Network
from tests.simulation.remote_log import BROKER, LogFaults
from tests.simulation.sidecar_server import SidecarServer
from tests.simulation.stand_ins import simulated
from tests.simulation.standalone_server import StandaloneServer
from tests.simulation.world import World

FAULTS_S = 30.0
CALM_S = 45.0
"""The time in which faults happen, and the longest after that for all to be well again."""
LOOK_S = 1.0
REQUESTS_MIN = 200
"""A schedule with fewer tries too little."""
RIVALS_SHARE = 0.1
"""The share of static members with an instance id that two processes have at a time."""
SHARED_SHARE = 0.7
"""The share of schedules in which processes share the partitions; in the others each takes all over."""
SIDECARS_SHARE = 0.4
"""The share of those in which they are sidecars, that forward to each other."""

NODES_MAX = 4

ANSWER_LEASES_MS = (2_000, 2_000, 12_000)
"""The longest one exceeds a session: with it a successor could evict a member that its predecessor still hears."""


class Played(msgspec.Struct, frozen=True, kw_only=True):
    """The remains of a schedule that was played."""

    seed: int
    topics: Topics
    kafka: Topics | None
    """The topics of the broker that coordinates the ownership group; None: nothing is shared."""
    answer_lease_ms: int
    offsets: LogBroker
    """Where committed offsets are: upstream, if clients are connected to sidecars."""
    members: Members
    everybody: list[Member]
    servers: list[MusterServer]
    faults: Counter[str]
    end_s: float
    network: Network


class Schedule:
    """See the module."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.world = World(seed)
        self.network = Network(self.world)
        self.random: Random = self.world.random
        self.topics = Topics(self.world, PARTITIONS)
        self.servers: list[MusterServer] = []
        self.faults: Counter[str] = Counter()
        claim_renewal_ms = self.random.choice((None, 7_000))
        self.answer_lease_ms = self.random.choice(ANSWER_LEASES_MS)
        self.surroundings = Surroundings(
            world=self.world,
            network=self.network,
            topics=self.topics,
            faults=LogFaults(),
            claim_renewal_ms=claim_renewal_ms,
            answer_lease_ms=self.answer_lease_ms,
        )
        self.members = Members(self.world, self.network, self._addresses)
        lot = self.random.random()
        self.kafka = Kafka(self.world, self.network) if lot < SHARED_SHARE else None
        self.new_server = SidecarServer if lot < SIDECARS_SHARE else StandaloneServer
        if self.kafka is not None and self.new_server is SidecarServer:
            self.members.upstream_serves_since_s = self.kafka.serves_since_s
            self.members.has_old_clients = True
        self._together = 1 if self.kafka is None else self.random.randint(2, 3)
        self._roles: dict[int, str] = {}
        self._nodes: dict[int, MusterServer] = {}
        """The newest process of each node, where they share the log."""
        self._is_calm = False
        self._faults_end_s = self.world.now_s + FAULTS_S

    def play(self) -> Played:
        """Play it to its end. Raises exceptions that were not handled."""
        with simulated(self.seed):
            self._supervise()
            everybody = self._everybody()
            self.world.after(self.random.uniform(3, 6), self._fault)
            self.world.run_until(self._faults_end_s)
            self._is_calm = self.members.is_calm = True
            end_s = self._faults_end_s
            while end_s < self._faults_end_s + CALM_S and not self._is_well(everybody):
                end_s += LOOK_S
                self.world.run_until(end_s)
        return Played(
            seed=self.seed,
            topics=self.topics,
            kafka=None if self.kafka is None else self.kafka.topics,
            answer_lease_ms=self.answer_lease_ms,
            offsets=self._offsets,
            members=self.members,
            everybody=everybody,
            servers=self.servers,
            faults=self.faults,
            end_s=end_s,
            network=self.network,
        )

    @property
    def _offsets(self) -> LogBroker:
        is_upstream = self.kafka is not None and self.new_server is SidecarServer
        return self.kafka.topics.offsets if is_upstream and self.kafka is not None else self.topics.offsets

    def _is_well(self, everybody: list[Member]) -> bool:
        """Return whether all members were heard again, each partition has an owner, and no append is in progress."""
        if self.members.ledger.requests < REQUESTS_MIN or any(
            each.is_running and each.is_writing for each in self.servers
        ):
            return False
        owned = sorted(number for each in self.servers if each.is_running for number in each.serves())
        heard_s = min(member.last_heartbeat_s for member in everybody)
        is_heard = heard_s > max(self._faults_end_s + SESSION_S, self.world.now_s - 2 * HEARTBEAT_S)
        return is_heard and owned == list(range(PARTITIONS))

    def _everybody(self) -> list[Member]:
        everybody = []
        for number in range(3):
            group_id, commits = f"group-{number}", self.random.choice((0.0, 0.5))
            for index in range(self.random.randint(2, 4)):
                instance = f"instance-{index}" if self.random.random() < 0.5 else None
                is_wrong = self.random.random() < 0.2
                name = f"{group_id}-{index}"
                everybody.append(Member(self.members, name, group_id, instance, is_wrong=is_wrong, commits=commits))
                if instance is not None and self.random.random() < RIVALS_SHARE:
                    Member(
                        self.members,
                        f"{name}-rival",
                        group_id,
                        instance,
                        is_wrong=False,
                        commits=commits,
                        is_rival=True,
                    )
        return everybody

    # ---- processes -----------------------------------------------------------------------------------

    def start_server(self) -> None:
        """Start another process: it takes the log over, is another node, or has the id of a running one."""
        if self.kafka is None:
            self._start(None)
        elif len(self._nodes) < NODES_MAX and self.random.random() < 0.5:
            self._start(len(self._nodes) + 1)
        else:
            self._start(self.random.choice(list(self._nodes)))

    def _start(self, node_id: int | None) -> None:
        number = len(self.servers)
        machine = number + 1 if node_id is None else node_id
        taken = {each.address for each in self.servers if each.is_running}
        address = next(each for n in itertools.count(1) if (each := f"10.0.{machine}.{n}") not in taken)
        server = self.new_server(
            self.surroundings,
            f"muster-{number}",
            host=f"node-{machine}",
            address=address,
            node_id=node_id,
            role=BOTH if node_id is None else self._role_of(node_id),
        )
        self.servers.append(server)
        if node_id is not None:
            self._nodes[node_id] = server

    def _role_of(self, node_id: int) -> str:
        """The first two own partitions and have clients; of sidecars the others may do only one of both."""
        if self.new_server is StandaloneServer:
            return BOTH
        if node_id not in self._roles:
            self._roles[node_id] = BOTH if node_id <= 2 else self.random.choice((BOTH, FRONTEND, OWNER))
        return self._roles[node_id]

    @property
    def server(self) -> MusterServer:
        """The newest process; where they share the log, any that runs."""
        if self.kafka is None:
            return self.servers[-1]
        return self.random.choice([each for each in self.servers if each.is_running] or self.servers[-1:])

    def _supervise(self) -> None:
        """Start processes again that have ended, as a supervisor does; of a log that is not shared, the newest."""
        if self.kafka is not None:
            self.kafka.supervise()
            for node_id in range(1, max(self._together, len(self._nodes)) + 1):
                node = self._nodes.get(node_id)
                if node is None or not node.is_running:
                    self._start(node_id)
        elif not self.servers or not self.servers[-1].is_running:
            self._start(None)
        self.world.after(LOOK_S, self._supervise)

    def _addresses(self) -> list[MusterServer]:
        """The processes that clients try: those that have not ended, and the last one, which may have."""
        for_clients = [each for each in self.servers if each.role != OWNER]
        running = [each for each in for_clients if each.is_running]
        return running if for_clients[-1].is_running else [*running, for_clients[-1]]

    # ---- faults --------------------------------------------------------------------------------------

    def _fault(self) -> None:
        if self._is_calm:
            return
        name, fault = self.random.choice(self._possible())
        self.faults[name] += 1
        fault()
        self.world.after(self.random.uniform(1, 10), self._fault)

    def _possible(self) -> list[tuple[str, Callable[[], None]]]:
        return [
            *(() if self.kafka is None else self._possible_of_kafka()),
            ("killed", self._kill),
            ("killed", self._kill),
            ("stopped", self._stop),
            ("taken over from a live one", self.start_server),
            ("taken over from a live one", self.start_server),
            ("paused", self._pause),
            ("paused", self._pause),
            ("suspended", self._suspend),
            ("cut from the log", lambda: self._cut(BROKER)),
            ("cut from the log", lambda: self._cut(BROKER)),
            ("cut from the log and taken over", lambda: self._cut(BROKER, and_taken_over=True)),
            ("cut from the clients", lambda: self._cut(CLIENTS)),
            ("clock set", self._set_clock),
        ]

    def _possible_of_kafka(self) -> list[tuple[str, Callable[[], None]]]:
        assert self.kafka is not None
        return [
            ("coordinator killed", self.kafka.kill),
            ("coordinator paused", self._pause_kafka),
            ("cut from the coordinator", lambda: self._cut(KAFKA)),
            ("cut from each other", self._cut_from_another),
        ]

    def _pause_kafka(self) -> None:
        assert self.kafka is not None
        self._pause_for(self.kafka.broker, self._lasts_s(self.random.choice((0.5, 3.0, 9.0))))

    def _cut_from_another(self) -> None:
        self._cut(self.server.name)

    def _pause_for(self, paused: MusterServer, lasts_s: float) -> None:
        paused.pause()
        self.world.after(lasts_s, paused.resume)

    def _stop(self) -> None:
        self.server.stop()

    def _kill(self) -> None:
        self.server.kill()
        if self.random.random() < 0.5:
            self.start_server()

    def _pause(self) -> None:
        """Pause the process; often another one takes over meanwhile, or it is killed in its sleep."""
        paused, lasts_s = self.server, self._lasts_s(self.random.choice((0.5, 3.0, 9.0, 20.0)))
        self._pause_for(paused, lasts_s)
        self._perhaps_successor(lasts_s)

    def _suspend(self) -> None:
        """Pause the machine instead of the process: its monotonic clock does not advance."""
        paused, lasts_s = self.server, self._lasts_s(self.random.uniform(0.5, 15.0))
        paused.pause()
        self._perhaps_successor(lasts_s)
        self.world.after(lasts_s, lambda: paused.resume(was_suspended_s=lasts_s))

    def _lasts_s(self, about_s: float) -> float:
        """The duration of a fault: about this long, but over when the faults are to end."""
        return min(about_s * self.random.uniform(0.5, 1.5), self._faults_end_s - self.world.now_s)

    def _perhaps_successor(self, within_s: float) -> None:
        if self.random.random() < 0.7:
            self.world.after(self.random.uniform(0, within_s), self.start_server)

    def _cut(self, other: str, *, and_taken_over: bool = False) -> None:
        if and_taken_over:  # while it may still answer from memory
            self.world.after(self.random.uniform(0, 0.2), self.start_server)
        name, lasts_s = self.server.name, self._lasts_s(self.random.choice((1.0, 5.0, 15.0)))
        self.network.cut(name, other)
        self.world.after(lasts_s, lambda: self.network.heal(name, other))
        if self.random.random() < 0.6:
            self.world.after(self.random.uniform(0, lasts_s), self.start_server)

    def _set_clock(self) -> None:
        self.server.loop.wall_offset_ms += round(self.random.choice((-3_600_000, -5_000, 5_000, 3_600_000)))

    def close(self) -> None:
        """Bury the world."""
        self.world.close()
