"""Processes that the drill starts and ends itself, with an event log of their own in the cluster.

If the fault needs a proxy, each process has one, on one of its two sides:

members ─► [proxy] ─► muster serve ─► [proxy] ─► the brokers, which have the log
"""

import asyncio
from collections.abc import Sequence
from contextlib import ExitStack
from enum import Enum, auto, unique
from pathlib import Path
from secrets import token_hex
from tempfile import TemporaryDirectory
from typing import Final

import msgspec

from muster.coordinator.client.coordinator_link import AdminError
from muster.drills.checking import groups_there
from muster.drills.names import Names
from muster.drills.plan import Mode, ServiceFailed, Unusable
from muster.drills.service.cluster import delete_all_groups, delete_topics, make_topic, node_ids
from muster.drills.service.process import HOST, LASTING_PORTS, MusterProcess, port_of, some_held
from muster.drills.service.proxy import Proxy, Weather
from muster.events.kafka.addresses import BrokerAddress, read_servers
from muster.events.kafka.security import NOT_SECURED, KafkaSecurity

SHARED_WITHIN_S: Final = 120.0
POLL_S: Final = 0.05
KAFKA_TIMEOUT_MS: Final = 5_000
INITIAL_DELAY: Final = "group.initial.rebalance.delay.ms=500"


@unique
class Proxied(Enum):
    """The side of each process on which the drill has a proxy."""

    NOTHING = auto()
    LOG = auto()
    CLIENTS = auto()


class Setup(msgspec.Struct, frozen=True, kw_only=True):
    """The setup of the processes. `kafka`: the brokers. `kafka_config`: KEY=VALUE, as in a process's options."""

    kafka: str
    security: KafkaSecurity = NOT_SECURED
    kafka_config: tuple[str, ...] = ()
    mode: Mode = Mode.STANDALONE
    processes: int = 2
    partitions: int = 10
    topic_partitions: int
    owner_session_timeout_ms: int = 10_000
    proxied: Proxied = Proxied.NOTHING


class Spec(msgspec.Struct, frozen=True, kw_only=True):
    """The arguments in which one process differs from the others. `ports`: the ports for its other listeners.

    `brokers`: the addresses at which this process reaches the cluster.
    """

    node_id: int
    listen: str
    advertise: str
    brokers: str
    ports: tuple[int, ...]


class LocalService:
    """A `Service` whose processes the drill starts (see the module). Call `end` in any case, even after an error."""

    def __init__(self, setup: Setup, names: Names) -> None:
        self._setup = setup
        self._names = names
        self._scratch = TemporaryDirectory(prefix="muster-drill-")
        self._holding = ExitStack()
        self._nodes: list[int] = []
        self._has_topic = False
        self._proxies: list[Proxy] = []
        self._names_by_pid: dict[str, str] = {}
        self.processes: list[MusterProcess] = []
        self.weather: dict[str, Weather] = {}
        """The simulated network of each process that has a proxy, by the process's name."""

    @property
    def bootstrap(self) -> str:
        return ",".join(process.address for process in self.processes)

    @property
    def partitions(self) -> int:
        """The number of partitions of the event log."""
        return self._setup.partitions

    @property
    def topic(self) -> str:
        return self._names.subscribed_topic

    @property
    def log_url(self) -> str:
        return f"kafka://{self._setup.kafka}/{self._names.topic}"

    @property
    def has_new_log(self) -> bool:
        return True

    @property
    def client_security(self) -> KafkaSecurity:
        return NOT_SECURED if self._setup.mode is Mode.STANDALONE else self._setup.security

    @property
    def log_security(self) -> KafkaSecurity:
        return self._setup.security

    @property
    def description(self) -> str:
        partitions = f"{self._setup.partitions} partitions of {self.log_url}"
        kind = "processes" if self._setup.mode is Mode.STANDALONE else "sidecars"
        return f"{len(self.processes)} {kind} of its own, which share {partitions}"

    def process_of(self, owner: str) -> str:
        return self._names_by_pid.get(owner.rpartition(":")[2], owner)

    async def start(self) -> None:
        """Start all processes, and wait until they share the partitions. Raises Unusable, ServiceFailed."""
        try:
            await groups_there(self._setup.kafka, self._setup.security, timeout_ms=KAFKA_TIMEOUT_MS)
        except AdminError as error:
            raise Unusable(f"--kafka {self._setup.kafka}: {error}") from error
        if self._setup.mode is Mode.SIDECAR:
            await self._prepare_for_sidecars()
        each = 2 + len(self._nodes)
        ports = self._lasting_ports(each * self._setup.processes)
        for node_id in range(1, self._setup.processes + 1):
            first, *others = ports[each * (node_id - 1) : each * node_id]
            self.processes.append(self._new_process(node_id, first, tuple(others)))
        async with asyncio.TaskGroup() as starting:
            for process in self.processes:
                starting.create_task(self.start_again(process))
        await self.shared()

    async def start_again(self, process: MusterProcess) -> None:
        """Start a process that is not running. Raises ServiceFailed."""
        await process.start()
        self._names_by_pid[str(process.pid)] = process.name

    async def shared(self, *, within_s: float = SHARED_WITHIN_S) -> None:
        """Wait until the running processes share all partitions evenly. Raises ServiceFailed."""
        running = [process for process in self.processes if process.pid is not None]
        try:
            async with asyncio.timeout(within_s):
                while not _is_shared(running, self._setup.partitions):
                    for process in running:
                        process.check()
                    await asyncio.sleep(POLL_S)
        except TimeoutError:
            said = "; ".join(f"{each.name} says {each.complaint or each.last('partitions shared')}" for each in running)
            raise ServiceFailed(
                f"{len(running)} processes have not shared {self._setup.partitions} partitions out within"
                f" {within_s:g} s: {said}"
            ) from None

    def owned_by(self, process: MusterProcess) -> frozenset[int]:
        """Return the partitions assigned to a process, from the last such line in its log."""
        told = process.last("partitions shared")
        return frozenset(told["ours"]) if told is not None else frozenset()

    async def end(self) -> list[str]:
        """End all processes, and delete what they created in the cluster; return descriptions of what is left."""
        has_made_something = self._has_topic or any(process.was_started for process in self.processes)
        await asyncio.gather(*(process.end() for process in self.processes), return_exceptions=True)
        await asyncio.gather(*(proxy.close() for proxy in self._proxies), return_exceptions=True)
        self._scratch.cleanup()
        self._holding.close()
        if not has_made_something:
            return []
        left = await delete_all_groups(self._setup.kafka, self._names, self._setup.security)
        return left + await delete_topics(self._setup.kafka, self._names, self._setup.security)

    async def _prepare_for_sidecars(self) -> None:
        """Prepare what sidecars need: the brokers' node ids, a topic and a secret. Raises ServiceFailed."""
        setup = self._setup
        self._nodes = await node_ids(setup.kafka, setup.security)
        await make_topic(setup.kafka, self.topic, setup.topic_partitions, setup.security, brokers=len(self._nodes))
        self._has_topic = True
        self._secret.touch(mode=0o600)
        self._secret.write_text(token_hex(32), encoding="ascii")

    def _lasting_ports(self, count: int) -> list[int]:
        found = [port_of(self._holding.enter_context(each)) for each in some_held(count)]
        if len(found) < count:
            first, last = LASTING_PORTS[0], LASTING_PORTS[-1]
            raise ServiceFailed(f"{count} free ports of {HOST} are needed between {first} and {last}")
        return found

    @property
    def _secret(self) -> Path:
        return Path(self._scratch.name, "secret")

    def _new_process(self, node_id: int, port: int, ports: tuple[int, ...]) -> MusterProcess:
        name, listen = f"process {node_id}", f"{HOST}:{port}"
        advertise, brokers = listen, self._setup.kafka
        if self._setup.proxied is not Proxied.NOTHING:
            weather = self.weather[name] = Weather()
            proxy = Proxy(weather)
            self._proxies.append(proxy)
            if self._setup.proxied is Proxied.LOG:
                brokers = proxy.before_brokers(read_servers(brokers))
            else:
                advertise = proxy.before(BrokerAddress(HOST, port))
        spec = Spec(node_id=node_id, listen=listen, advertise=advertise, brokers=brokers, ports=ports)
        return MusterProcess(name, self._arguments(spec), address=advertise)

    def _arguments(self, spec: Spec) -> list[str]:
        """Return the arguments of `muster serve` for a process."""
        setup = self._setup
        options = {
            "--listen": spec.listen,
            "--node-id": str(spec.node_id),
            "--log": f"kafka://{spec.brokers}/{self._names.topic}",
            "--log-partitions": str(setup.partitions),
            "--owner-session-timeout-ms": str(setup.owner_session_timeout_ms),
            "--config": INITIAL_DELAY,
            **(self._of_standalone(spec) if setup.mode is Mode.STANDALONE else self._of_sidecar(spec)),
        }
        config = "--kafka-config" if setup.mode is Mode.STANDALONE else "--upstream-config"
        given = [part for option in options.items() for part in option]
        return [*given, "--share-partitions", *(part for each in setup.kafka_config for part in (config, each))]

    def _of_standalone(self, spec: Spec) -> dict[str, str]:
        return {"--advertise": spec.advertise, "--topic": f"{self.topic}:{self._setup.topic_partitions}"}

    def _of_sidecar(self, spec: Spec) -> dict[str, str]:
        peer, *listeners = spec.ports
        ports = ",".join(f"{node}={port}" for node, port in zip(self._nodes, listeners, strict=True))
        return {
            "--upstream": spec.brokers,
            "--groups": f"{self._names.prefix}-*",
            "--listener-map": ports,
            "--peer-listen": f"{HOST}:{peer}",
            "--peer-secret-file": str(self._secret),
        }


def _is_shared(processes: Sequence[MusterProcess], partitions: int) -> bool:
    told = [process.last("partitions shared") for process in processes]
    shares = [line["ours"] for line in told if line is not None and not line["moving"]]
    whole = sorted(number for share in shares for number in share)
    sizes = {len(share) for share in shares}
    return len(shares) == len(processes) and whole == list(range(partitions)) and max(sizes) - min(sizes) <= 1
