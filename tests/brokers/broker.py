"""A running broker, as its users see it; its start-up failures, and the settings common to all methods.

NoBroker            no method works; the message lists each with its reason
BrokerFailed        one method does not work here; the next one is tried
  PortTaken         the port was taken between choosing and binding it; the same method is tried again
"""

import random
import socket
import subprocess
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Final

import msgspec

from muster.drills.service.process import LASTING_PORTS, held, port_of, some_held

HOST: Final = "127.0.0.1"
NO_BROKERS_VARIABLE: Final = "MUSTER_TEST_NO_BROKERS"
"""Set by `pytest --quick`."""
NO_BROKERS: Final = "a quick run starts no broker and no client: mark the test, or see tests/selection.py"
PLAIN: Final[Mapping[str, str]] = {"PLAINTEXT": "PLAINTEXT"}
"""The listeners of a broker without authentication, with their security protocols."""

# A single broker: every internal topic has one replica, and few partitions, since a test's first join waits for their
# creation. Groups form in 50 ms instead of 3 s (with 0 ms Kafka 4.3.1 may wait for the whole rebalance timeout when
# members join at the same time), and sessions may be as short as a test likes. No sweep deletes empty groups ten
# minutes after the start, during a test that uses them.
TEST_SETTINGS: Final[Mapping[str, str]] = {
    "group.initial.rebalance.delay.ms": "50",
    "group.min.session.timeout.ms": "100",
    "offsets.retention.check.interval.ms": "86400000",
    "offsets.topic.num.partitions": "5",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.num.partitions": "5",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "default.replication.factor": "1",
    "min.insync.replicas": "1",
    # No empty record twice a second: a quarter of the processor time of an idle cluster.
    "metadata.max.idle.interval.ms": "0",
}

# Test brokers live for seconds: Java's quick compiler alone saves a third of each start. Brokers for measurements
# compile fully.
JVM_OPTIONS: Final = ("-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
MEASURED_JVM_OPTIONS: Final = ("-Xmx512m", "-XX:+UseSerialGC")
PORT_TAKEN_WORDS: Final = ("port is already allocated", "address already in use", "Address already in use")

# For processes that end after a second or two.
JAVA_TIMEOUT_S: Final = 120
SHORT_LIVED_JVM_OPTIONS: Final = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


class NoBroker(Exception):
    """No method of providing a broker works here."""


class BrokerFailed(Exception):
    """One method of providing a broker does not work here."""


class PortTaken(BrokerFailed):
    """The port chosen for the broker was taken before the broker could bind it."""


class Broker(msgspec.Struct, frozen=True, kw_only=True):
    """A broker that responds to requests."""

    bootstrap: str
    """`host:port`, in the clients' form."""
    how: str
    """One sentence: the method and version used, and the skipped methods with their reasons."""


class Node(msgspec.Struct, frozen=True, kw_only=True):
    """A broker's node id in its cluster, and the ports it listens on."""

    node_id: int = 1
    ports: Mapping[str, int]
    """Ports by the listener's name; always includes `PLAINTEXT`."""
    controller_port: int

    @property
    def bootstrap(self) -> str:
        """`host:port` of its plain listener."""
        return self.address("PLAINTEXT")

    def address(self, listener: str) -> str:
        """`host:port` of one of its listeners."""
        return f"{HOST}:{self.ports[listener]}"


def kraft_settings(
    node: Node,
    *,
    log_dir: str,
    voters: Sequence[Node] = (),
    protocols: Mapping[str, str] = PLAIN,
    listen_host: str = HOST,
) -> dict[str, str]:
    """The settings of a broker that is a controller too, alone or with the other `voters`, reached at 127.0.0.1.

    `protocols` are those of its listeners, by name, as in `listener.security.protocol.map`. The broker listens on the
    ports that it advertises, so the addresses are right inside a container too.
    """
    listeners = [f"{name}://{listen_host}:{node.ports[name]}" for name in protocols]
    advertised = [f"{name}://{node.address(name)}" for name in protocols]
    return {
        "process.roles": "broker,controller",
        "node.id": str(node.node_id),
        "controller.quorum.voters": ",".join(
            f"{each.node_id}@{HOST}:{each.controller_port}" for each in voters or (node,)
        ),
        "controller.listener.names": "CONTROLLER",
        "listeners": ",".join([*listeners, f"CONTROLLER://{HOST}:{node.controller_port}"]),
        "advertised.listeners": ",".join(advertised),
        "listener.security.protocol.map": ",".join(
            f"{name}:{protocol}" for name, protocol in {"CONTROLLER": "PLAINTEXT", **protocols}.items()
        ),
        "inter.broker.listener.name": "PLAINTEXT",
        "log.dirs": log_dir,
    }


def properties_text(settings: Mapping[str, str]) -> str:
    """A Java properties file."""
    return "".join(f"{key}={value.replace(chr(92), chr(92) * 2)}\n" for key, value in settings.items())


def free_ports(count: int) -> list[int]:
    """`count` different ports of 127.0.0.1 that are free now."""
    with ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind((HOST, 0))
        return [int(each.getsockname()[1]) for each in sockets]


def lasting_ports(count: int) -> list[int]:
    """`count` different ports like those of a drill's processes (drills/service/process.py).

    They stay reserved while this process lives.
    """
    return [_kept(each) for each in some_held(count)]


def lasting_base(count: int = 1) -> int:
    """A port followed by `count` ports like those of `lasting_ports`: one for each node id from 1 on."""
    for base in random.sample(LASTING_PORTS[:-count], len(LASTING_PORTS) - count):
        if sockets := held(range(base, base + count + 1)):
            return min(map(_kept, sockets))
    raise AssertionError(f"no {count} ports in a row are free")


HELD_MAX: Final = 100
"""More would leave no descriptors below 1,024, the limit of select(). Earlier ones are in use by then."""

_HELD: Final = deque[socket.socket]()


def _kept(holding: socket.socket) -> int:
    """Reserve a port from now on; return it."""
    _HELD.append(holding)
    if len(_HELD) > HELD_MAX:
        _HELD.popleft().close()
    return port_of(holding)


def start_failure(reason: str, *, log: str = "") -> BrokerFailed:
    """The error for a failed start, from the output of Java or the engine, with the end of the log."""
    taken = any(words in f"{reason}\n{log}" for words in PORT_TAKEN_WORDS)
    message = f"{reason}; the end of its log:\n{log_tail(log)}" if log else reason
    return PortTaken(message) if taken else BrokerFailed(message)


def run_java(command: Sequence[str], *, failure: str) -> None:
    """Run a Java command to its end. Raises `BrokerFailed` with `failure` and the end of its output."""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=JAVA_TIMEOUT_S, stdin=subprocess.DEVNULL, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BrokerFailed(f"{failure}: {error}") from error
    if done.returncode:
        raise BrokerFailed(f"{failure}:\n{log_tail(done.stdout + done.stderr)}")


def log_tail(text: str, *, lines: int = 40) -> str:
    """The end of a broker's log, for an error message."""
    return "\n".join(text.splitlines()[-lines:]) or "(the log is empty)"
