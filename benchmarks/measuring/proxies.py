"""Another proxy in front of the same broker, for comparison, if it is available.

kafka-proxy (Go) is taken from the path, or built by `go install` and kept in the cache of the test brokers. If it is
not available, `NotToBeHad` says why. For Kroxylicious (Java) Maven Central has no application.
"""

import os
import re
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager

from benchmarks.measuring.processes import child_of
from benchmarks.measuring.relaying import Way
from tests.brokers.broker import HOST, lasting_ports
from tests.brokers.child import leashed
from tests.brokers.jars import cache_directory

KAFKA_PROXY = "github.com/grepplabs/kafka-proxy@v0.4.3"
STARTS_WITHIN_S = 30
BUILDS_WITHIN_S = 600
CHECK_INTERVAL_S = 0.05


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
def _running(command: list[str], at: str) -> Iterator[int]:
    """The pid of a process that accepts connections."""
    with tempfile.TemporaryFile() as output, leashed(command, stdout=output) as leash:
        deadline = time.monotonic() + STARTS_WITHIN_S
        while not _accepts(at):
            if leash.poll() is not None or time.monotonic() > deadline:
                output.seek(0)
                told = output.read()[-2_000:].decode(errors="replace")
                raise NotToBeHad(f"{command[0]} does not take connections at {at}: {told}")
            time.sleep(CHECK_INTERVAL_S)
        yield child_of(leash)


def _accepts(at: str) -> bool:
    host, _, port = at.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=1).close()
    except OSError:
        return False
    return True


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
    """Remove addresses, which depend on the machine, from the text, since results are kept."""
    return re.sub(r"\S*https?://\S+", "(address)", text)
