"""A cluster of three brokers, and the Musters that share the partitions of a log there: all of them real processes.

In front of the cluster (`sidecar`): two sidecars that own groups, and an edge. `standalone`: three processes.

clients ─► relays ─► Musters ─► relays ─► brokers      (and between the Musters)

It starts and stops them, and connects them; it knows nothing of faults.
"""

import asyncio
import os
import secrets
import signal
import subprocess
from collections import Counter
from collections.abc import Collection, Sequence
from contextlib import suppress
from enum import StrEnum, unique
from pathlib import Path
from typing import Final
from uuid import uuid4

import msgspec

from muster.drills.load.asking import Coordinators
from muster.drills.load.load import explained
from muster.events.ids import GroupId
from muster.events.kafka.addresses import read_servers
from muster.events.kafka.connections import Connections
from muster.events.kafka.security import NOT_SECURED
from muster.events.log.kafka.names import ownership_group
from muster.events.partitioner import partition_for
from tests.brokers.broker import HOST, lasting_ports
from tests.brokers.cluster import Cluster
from tests.chaos.network import Network
from tests.clients.through_sidecar.sidecar import new_topic
from tests.forked import COMMAND
from tests.muster_process import MusterProcess

LOG_PARTITIONS: Final = 6
TOPIC_PARTITIONS: Final = 6
OWNER_SESSION_MS: Final = 6_000
SNAPSHOT_EVERY_MS: Final = 5_000
KNOW_EVERY_S: Final = 0.01
SERVES_WITHIN_S: Final = 300.0
CONFIG: Final = ("group.initial.rebalance.delay.ms=300", "offsets.retention.check.interval.ms=86400000")
OLDER_COMMAND: Final = (COMMAND[0], "-m", "tests.chaos.older", "serve")
BROKER: Final = "broker-{}"


@unique
class Mode(StrEnum):
    SIDECAR = "sidecar"
    STANDALONE = "standalone"


class Muster(msgspec.Struct, eq=False):
    """A slot for a process. `listen` and `listeners` (one for each broker) are for clients, `peer` for other Musters.
    `peer_relay`: the address given to those; `bootstrap`: the address for clients.
    """

    name: str
    node_id: int
    is_edge: bool
    listen: int
    listeners: Sequence[int]
    peer: int
    peer_relay: int
    bootstrap: str
    output: Path
    process: MusterProcess | None = None
    is_older: bool = True
    """True if its version knows no format level above 3; all start like that, so that the log has that level."""

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def shares(self) -> tuple[frozenset[int], bool] | None:
        """Return the partitions that it is to own, and whether some are still being moved, from its last log line."""
        reported = [] if self.process is None else self.process.events("partitions shared")
        return (frozenset(reported[-1]["ours"]), bool(reported[-1]["moving"])) if reported else None


class Service:
    """See the module. `folder`: for logs of the processes; `snapshots`: for theirs. End it in the end."""

    def __init__(self, cluster: Cluster, mode: Mode, folder: Path, snapshots: Path) -> None:
        self.cluster = cluster
        self.mode = mode
        self.network = Network()
        self.log_topic = f"chaos-{uuid4().hex[:8]}"
        self.topic = "work"
        self._folder = folder
        self.snapshots = snapshots
        self._secret = folder / "secret"
        self.musters: list[Muster] = []
        self._brokers = ""
        self.gone: set[int] = set()
        """The brokers that are down."""
        self.group_ids: Collection[str] = ()
        """The groups of the run's own members."""
        self.is_upgraded = False
        self.ended: list[str] = []
        """Processes that have ended by themselves, with their last words."""

    @property
    def log_url(self) -> str:
        """The URL of the log for a reader that is not cut off."""
        return f"kafka://{self.cluster.bootstrap}/{self.log_topic}"

    @property
    def bootstraps(self) -> list[str]:
        """Where clients reach each process; the process that comes first differs."""
        all_of_them = [muster.bootstrap for muster in self.musters]
        return [",".join(all_of_them[at:] + all_of_them[:at]) for at in range(len(all_of_them))]

    @property
    def owners(self) -> list[Muster]:
        """Those that may own groups, the one that has most of the groups first."""
        groups_on = Counter(partition_for(GroupId(group_id), LOG_PARTITIONS) for group_id in self.group_ids)

        def groups(muster: Muster) -> int:
            share = muster.shares()
            return 0 if share is None else sum(groups_on[number] for number in share[0])

        return sorted((muster for muster in self.musters if not muster.is_edge), key=groups, reverse=True)

    @property
    def edges(self) -> list[Muster]:
        return [muster for muster in self.musters if muster.is_edge]

    async def start(self) -> None:
        """Start all processes, and wait until the partitions are shared. Raises MusterEnded, TimeoutError."""
        self._secret.write_text(secrets.token_hex(32))
        brokers: dict[int, int] = {}
        for node in self.cluster.nodes:
            port = int(self.cluster.address(node).rpartition(":")[2])
            brokers |= await self.network.add(BROKER.format(node), [port], rewrites=True)
        self._brokers = ",".join(f"{HOST}:{port}" for port in brokers.values())
        if self.mode is Mode.SIDECAR:
            self.topic = await asyncio.to_thread(lambda: new_topic(self.cluster.bootstrap, partitions=TOPIC_PARTITIONS))
        for node_id in (1, 2, 3):
            self.musters.append(await self._new_muster(node_id))
        for muster in self.musters:
            await self.start_one(muster)

    async def start_one(self, muster: Muster, *, alone: bool = False) -> None:
        """Start a process that does not run; `alone`: as the only one of its log. Raises MusterEnded."""
        assert muster.process is None
        command = OLDER_COMMAND if muster.is_older else COMMAND
        process = MusterProcess(
            *self._arguments(muster, alone=alone),
            output=muster.output,
            port=muster.listen,
            command=command,
            serves_within_s=SERVES_WITHIN_S,
        )
        await self.network.serve(muster.name)
        knowing = asyncio.create_task(self._know(muster, process))
        try:
            await asyncio.to_thread(process.start)
        finally:
            knowing.cancel()
        muster.process = process
        self.network.pids[muster.name] = process.pid

    async def _know(self, muster: Muster, process: MusterProcess) -> None:
        """Register the pid with the network as soon as there is one: the process connects before it serves."""
        while muster.name not in self.network.pids:
            with suppress(AssertionError, OSError, ValueError):  # not yet
                self.network.pids[muster.name] = process.pid
            await asyncio.sleep(KNOW_EVERY_S)

    async def stop_one(self, muster: Muster) -> None:
        """Stop it cleanly. Raises MusterEnded."""
        process = self._let_go(muster)
        try:
            code = await asyncio.to_thread(process.stop)
        finally:
            self.network.refuse(muster.name)
        if code != 0:
            self.ended.append(f"{muster.name} ended with {code} when it was to stop:\n{process.output[-2_000:]}")

    async def kill_one(self, muster: Muster) -> None:
        """End it as `kill -9` does."""
        process = self._let_go(muster)
        os.kill(process.pid, signal.SIGKILL)
        self.network.refuse(muster.name)
        await asyncio.to_thread(process.kill)

    async def upgrade(self) -> None:
        """Raise the log to the format level of this version, while no process serves it. Raises CalledProcessError."""
        command = [COMMAND[0], "-m", "muster", "log", "upgrade", "--log", self.log_url, "--yes"]
        await asyncio.to_thread(lambda: subprocess.run(command, check=True, capture_output=True, timeout=120))
        self.is_upgraded = True

    async def kill_broker(self, node: int) -> None:
        self.gone.add(node)
        await asyncio.to_thread(self.cluster.kill, node)
        self.network.refuse(BROKER.format(node))

    async def start_broker(self, node: int) -> None:
        """Start it again, and wait until all know it. Raises BrokerFailed."""
        await self.network.serve(BROKER.format(node))
        await asyncio.to_thread(self.cluster.start, node)
        self.gone.discard(node)

    async def coordinator(self) -> int:
        """The node that coordinates the group of the processes."""
        connections = Connections(NOT_SECURED, connect_timeout_ms=3_000, explain=explained)
        coordinators = Coordinators(connections, read_servers(self.cluster.bootstrap))
        try:
            address = await coordinators.of(ownership_group(self.log_topic))
        finally:
            await coordinators.close()
            await connections.close()
        return next(node for node in self.cluster.nodes if self.cluster.address(node) == str(address))

    def note_ended(self) -> None:
        """Record the processes that have ended by themselves, so that they are started again."""
        for muster in self.musters:
            if muster.process is not None and not _runs(muster.process):
                process = self._let_go(muster)
                process.end()
                self.network.refuse(muster.name)
                self.ended.append(f"{muster.name} ended by itself:\n{process.output[-2_000:]}")

    def is_shared(self) -> bool:
        """Return whether the running processes have all partitions between them."""
        reported = [muster.shares() for muster in self.musters if muster.process is not None]
        shares = [share for share in reported if share is not None and not share[1]]
        whole = sorted(number for share, _ in shares for number in share)
        return len(shares) == len(self.musters) and whole == list(range(LOG_PARTITIONS))

    async def end(self) -> None:
        for muster in self.musters:
            if muster.process is not None:
                with suppress(ProcessLookupError, ValueError):
                    os.kill(muster.pid, signal.SIGCONT)
                await asyncio.to_thread(self._let_go(muster).kill)
        await self.network.close()

    # ---- how they are set up --------------------------------------------------------------------------

    def _let_go(self, muster: Muster) -> MusterProcess:
        process, muster.process = muster.process, None
        assert process is not None
        self.network.pids.pop(muster.name, None)
        return process

    async def _new_muster(self, node_id: int) -> Muster:
        name = f"muster-{node_id}"
        nodes = len(self.cluster.nodes) if self.mode is Mode.SIDECAR else 0
        peer, listen, *listeners = lasting_ports(2 + nodes)
        relayed = await self.network.add(name, [listen, *listeners], rewrites=self.mode is Mode.SIDECAR)
        relayed_peers = await self.network.add(name, [peer], rewrites=False)
        return Muster(
            name=name,
            node_id=node_id,
            is_edge=self.mode is Mode.SIDECAR and node_id == 3,
            listen=listen,
            listeners=listeners,
            peer=peer,
            peer_relay=relayed_peers[peer],
            bootstrap=f"{HOST}:{relayed[listen]}",
            output=self._folder / f"{name}.log",
        )

    def _arguments(self, muster: Muster, *, alone: bool) -> list[str]:
        options = {
            "--log": f"kafka://{self._brokers}/{self.log_topic}",
            "--log-partitions": str(LOG_PARTITIONS),
            "--log-replication": "3",
            "--snapshots": str(self.snapshots),
            "--snapshot-interval-ms": str(SNAPSHOT_EVERY_MS),
        }
        given = ["--log-level", "debug"] if os.environ.get("CHAOS_DEBUG") else []
        for each in CONFIG:
            given += ["--config", each]
        if not alone:
            given.append("--share-partitions")
            options["--owner-session-timeout-ms"] = str(OWNER_SESSION_MS)
        if not alone or self.mode is Mode.STANDALONE:
            options["--node-id"] = str(muster.node_id)
        if self.mode is Mode.STANDALONE:
            options |= {"--advertise": muster.bootstrap, "--topic": f"{self.topic}:{TOPIC_PARTITIONS}"}
        else:
            pairs = zip(self.cluster.nodes, muster.listeners, strict=True)
            ports = ",".join(f"{node}={port}" for node, port in pairs)
            options |= {"--upstream": self._brokers, "--listener-map": ports}
            if not alone:
                options |= {
                    "--peer-listen": f"{HOST}:{muster.peer}",
                    "--peer-advertise": f"{HOST}:{muster.peer_relay}",
                    "--peer-secret-file": str(self._secret),
                }
                if muster.is_edge:
                    options["--role"] = "edge"
        return [*(part for option in options.items() for part in option), *given]


def _runs(process: MusterProcess) -> bool:
    try:
        os.kill(process.pid, 0)
    except (ProcessLookupError, ValueError):  # a leash without a child
        return False
    return True
