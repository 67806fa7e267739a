"""Other proxies in front of the same broker, to be compared with: where they can be had.

kafka-proxy (Go) is taken from the path, or built by `go install`; Kroxylicious (Java) comes from Maven Central. What is
fetched is kept in the cache of the test brokers. Neither is left out in silence: `NotToBeHad` says why.
"""

import os
import re
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import requests
from jgo.maven import MavenContext, PythonResolver

from benchmarks.processes import child_of
from benchmarks.relaying import Way
from tests.brokers import resolved_libs
from tests.brokers.broker import HOST, lasting_ports
from tests.brokers.child import leashed
from tests.brokers.jars import REQUEST_TIMEOUT_S, SCOPES_AT_RUN_TIME, cache_directory

KAFKA_PROXY = "github.com/grepplabs/kafka-proxy@v0.4.3"
KROXYLICIOUS = "io.kroxylicious:kroxylicious-app:0.17.0"
STARTS_WITHIN_S = 30
BUILDS_WITHIN_S = 600
LOOK_EVERY_S = 0.05

# The ports above the one to begin with are for the node ids of the ranges, in their order; the broker's node id is 1.
GATEWAY = """\
virtualClusters:
  - name: bench
    targetCluster:
      bootstrapServers: {broker}
    gateways:
      - name: bench
        portIdentifiesNode:
          bootstrapAddress: {host}:{port}
          nodeIdRanges:
            - name: brokers
              start: 1
              end: 1
"""


class NotToBeHad(Exception):
    """A proxy that is not here and cannot be fetched, or does not start; the message says why."""


@contextmanager
def kafka_proxy(broker: str) -> Iterator[Way]:
    """kafka-proxy in front of the only broker. Raises NotToBeHad."""
    binary = shutil.which("kafka-proxy") or _installed_by_go()
    (port,) = lasting_ports(1)
    at = f"{HOST}:{port}"
    command = [binary, "server", "--bootstrap-server-mapping", f"{broker},{at}", "--http-disable"]
    with _running([*command, "--dynamic-listeners-disable"], at) as pid:
        yield Way(name="kafka-proxy", bootstrap=at, pid=pid)


@contextmanager
def kroxylicious(broker: str) -> Iterator[Way]:
    """Kroxylicious in front of the only broker. Raises NotToBeHad."""
    jars = _jars_of(KROXYLICIOUS)
    port, _ = _neighbours()
    at = f"{HOST}:{port}"
    with tempfile.TemporaryDirectory(prefix="muster-bench-") as directory:
        config = Path(directory) / "config.yaml"
        config.write_text(GATEWAY.format(broker=broker, host=HOST, port=port), encoding="utf-8")
        java = [str(resolved_libs().java), "-Xmx512m", "-cp", f"{jars}/*", "io.kroxylicious.app.Kroxylicious"]
        with _running([*java, "--config", str(config)], at) as pid:
            yield Way(name="kroxylicious", bootstrap=at, pid=pid)


PROXIES: Mapping[str, Callable[[str], AbstractContextManager[Way]]] = {
    "kafka-proxy": kafka_proxy,
    "kroxylicious": kroxylicious,
}


@contextmanager
def _running(command: list[str], at: str) -> Iterator[int]:
    """The pid of a process that takes connections."""
    with tempfile.TemporaryFile() as output, leashed(command, stdout=output) as leash:
        deadline = time.monotonic() + STARTS_WITHIN_S
        while not _accepts(at):
            if leash.poll() is not None or time.monotonic() > deadline:
                output.seek(0)
                told = output.read()[-2_000:].decode(errors="replace")
                raise NotToBeHad(f"{command[0]} does not take connections at {at}: {told}")
            time.sleep(LOOK_EVERY_S)
        yield child_of(leash)


def _accepts(at: str) -> bool:
    host, _, port = at.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=1).close()
    except OSError:
        return False
    return True


def _neighbours() -> tuple[int, int]:
    """Two free ports, one after the other: for the address to begin with, and for the broker."""
    while True:
        (first,) = lasting_ports(1)
        with socket.socket() as second:
            try:
                second.bind((HOST, first + 1))
            except OSError:
                continue
        return first, first + 1


def _installed_by_go() -> str:
    go = shutil.which("go")
    if go is None:
        raise NotToBeHad("no kafka-proxy on the path, and no go to install it with")
    module, _, version = KAFKA_PROXY.partition("@")
    directory = cache_directory() / f"kafka-proxy-{version}"
    binary = directory / "kafka-proxy"
    if not binary.exists():
        environment = {**os.environ, "GOBIN": str(directory)}
        command = [go, "install", KAFKA_PROXY]
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=BUILDS_WITHIN_S, check=False
        )
        if done.returncode != 0:
            raise NotToBeHad(f"no kafka-proxy on the path, and go cannot install {module} {version}: {_last(done)}")
    return str(binary)


def _last(done: subprocess.CompletedProcess[str]) -> str:
    lines = done.stderr.strip().splitlines()
    return _without_addresses(lines[-1].strip()) if lines else f"exit code {done.returncode}"


def _without_addresses(text: str) -> str:
    """Where it was looked for depends on the machine, and does not belong into results that are kept."""
    return re.sub(r"\S*https?://\S+", "(address)", text)


def _jars_of(coordinate: str) -> Path:
    directory = cache_directory() / coordinate.replace(":", "-")
    if directory.is_dir():
        return directory
    with tempfile.TemporaryDirectory(prefix="resolving-", dir=directory.parent) as scratch:
        flat = Path(scratch) / "jars"
        flat.mkdir()
        maven = MavenContext(resolver=PythonResolver(), repo_cache=Path(scratch) / "m2", timeout=REQUEST_TIMEOUT_S)
        try:
            named, needed = maven.resolver.resolve([maven.create_dependency(coordinate)])
            for each in (*named, *(one for one in needed if one.scope in SCOPES_AT_RUN_TIME)):
                jar = Path(each.artifact.resolve())
                shutil.move(jar, flat / jar.name)
        except (requests.RequestException, RuntimeError, OSError) as error:
            reason = _without_addresses(str(error))
            raise NotToBeHad(f"{coordinate} cannot be had from Maven Central: {reason}") from error
        flat.rename(directory)
    return directory
