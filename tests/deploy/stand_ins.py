"""Stand-ins for the public images that compose.yaml names, made where no registry of images answers.

debootstrap makes a Debian root file system from the mirror that this machine's apt uses. It is imported under Python's
name, and the others are built on it: Kafka from the jars of the tests' brokers, Prometheus from its Debian package. No
package registry has Grafana, so it has no stand-in. A stand-in has the public image's name only until `remove` is
called, so that it is not mistaken for the public one later.
"""

import re
import shutil
import subprocess
import tarfile
from collections.abc import Callable, Mapping
from io import BytesIO
from pathlib import Path
from typing import Final

import docker

from tests.brokers.broker import BrokerFailed
from tests.brokers.image import EMPTY_DIRECTORIES, FILES, LEFT_OUT_OF_JAVA, entry, has, pull
from tests.brokers.jars import cache_directory, cache_lock, resolved_libs
from tests.brokers.java_tools import JavaTool

DEBIAN: Final = "trixie"
"""The release with the Python that compose.yaml asks for."""
BASE: Final = f"muster-try-debian:{DEBIAN}"
PACKAGES: Final = "python3,python3-pip,python3-venv,ca-certificates"
MADE_WITHIN_S: Final = 900
# The build fetches packages as this machine does: through its mirrors, which authorities of its own may vouch for.
OF_THIS_MACHINE: Final = ("etc/pip.conf", "etc/ssl/certs/ca-certificates.crt")
INSTALL: Final = "RUN apt-get update -qq && apt-get install -y -qq --no-install-recommends"
PROMETHEUS: Final = f"""
{INSTALL} prometheus && mkdir /prometheus && chown nobody /prometheus
USER nobody
ENTRYPOINT ["/usr/bin/prometheus"]
CMD ["--config.file=/etc/prometheus/prometheus.yml", "--storage.tsdb.path=/prometheus"]
"""
KAFKA: Final = """
ADD root.tar /
ENV PATH=/opt/java/bin:/usr/bin:/bin LANG=C.UTF-8
CMD ["/bin/sh", "/opt/kafka/run"]
"""
COMPOSE: Final = f"{INSTALL} docker-compose docker-buildx"
PLUGINS: Final = "/usr/libexec/docker/cli-plugins"


def missing(client: docker.DockerClient, names: set[str]) -> set[str]:
    """Those of the images that the engine neither has nor can pull."""
    return {name for name in names if not has(client, name) and not _pulled(client, name)}


def _pulled(client: docker.DockerClient, name: str) -> bool:
    try:
        pull(client, name)
    except BrokerFailed:
        return False
    return True


def make(client: docker.DockerClient, names: set[str]) -> set[str]:
    """Build stand-ins for the images; return the names of those that have none."""
    recipes: dict[str, Callable[[str], None]] = {
        "python": lambda name: _import_debian(client, name),
        "apache/kafka": lambda name: _build(client, name, KAFKA, {"root.tar": _kafka_root()}),
        "prom/prometheus": lambda name: _build(client, name, PROMETHEUS),
    }
    for name in sorted(names):
        recipe = recipes.get(name.partition(":")[0])
        if recipe:
            recipe(name)
    return {name for name in names if name.partition(":")[0] not in recipes}


def remove(client: docker.DockerClient, names: set[str]) -> None:
    """Remove the names again, also those of images that were not built."""
    for name in {*names, BASE}:
        if has(client, name):
            client.images.remove(name, force=True)


def plugins(client: docker.DockerClient, to: Path) -> None:
    """Put Debian's `docker compose` and `docker buildx` where the docker command looks for plugins."""
    name = "muster-try-compose:1"
    _build(client, name, COMPOSE)
    container = client.containers.create(name, "true")  # never started
    try:
        packed, _ = container.get_archive(PLUGINS)
        with tarfile.open(fileobj=BytesIO(b"".join(packed))) as tar:
            tar.extractall(to, filter="tar")
    finally:
        container.remove()
        client.images.remove(name)


def _build(client: docker.DockerClient, name: str, recipe: str, files: Mapping[str, bytes] | None = None) -> None:
    if not has(client, BASE):
        _import_debian(client, BASE)
    context = BytesIO()
    with tarfile.open(fileobj=context, mode="w") as tar:
        recipe = f"FROM {BASE}\n{recipe}"
        for path, content in {"Dockerfile": recipe.encode(), **(files or {})}.items():
            tar.addfile(entry(path, tarfile.REGTYPE, size=len(content)), BytesIO(content))
    context.seek(0)
    client.images.build(fileobj=context, custom_context=True, tag=name, rm=True, timeout=MADE_WITHIN_S)


def _import_debian(client: docker.DockerClient, name: str) -> None:
    repository, _, tag = name.rpartition(":")
    changes = ["ENV SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt"]
    client.api.import_image(str(_debian_root()), repository=repository, tag=tag, changes=changes)


def _debian_root() -> Path:
    """The root file system as a tar file, kept in the tests' cache."""
    archive = cache_directory() / f"debian-{DEBIAN}.tar"
    with cache_lock(archive.name):
        if not archive.exists():
            scratch = cache_directory() / f"debian-{DEBIAN}.part"
            shutil.rmtree(scratch, ignore_errors=True)
            scratch.mkdir()
            try:
                _debootstrap(scratch)
                _run("tar", "-C", scratch / "root", "-cf", scratch / "root.tar", ".")
                (scratch / "root.tar").rename(archive)
            finally:
                shutil.rmtree(scratch)
    return archive


def _debootstrap(scratch: Path) -> None:
    root, mirror = scratch / "root", _mirror()
    tool: list[str | Path] = ["debootstrap"]
    if shutil.which("debootstrap") is None:  # the package alone: nothing is installed on this machine
        _run("apt-get", "download", "-qq", "debootstrap", at=scratch)
        (package,) = scratch.glob("debootstrap_*.deb")
        _run("dpkg-deb", "-x", package, scratch / "tool")
        at = scratch / "tool" / "usr"
        tool = ["env", f"DEBOOTSTRAP_DIR={at}/share/debootstrap", "sh", at / "sbin" / "debootstrap"]
    _run(*tool, "--variant=minbase", f"--include={PACKAGES}", DEBIAN, root, mirror)
    for name in OF_THIS_MACHINE:
        if Path("/", name).exists():
            shutil.copy(Path("/", name), root / name)
    # As in the public image: `python` is there, and pip may install beside the packages of Debian.
    (root / "usr/bin/python").symlink_to("python3")
    for marker in root.glob("usr/lib/python3*/EXTERNALLY-MANAGED"):
        marker.unlink()
    _run("chroot", root, "apt-get", "clean")


def _mirror() -> str:
    """The mirror that apt takes Debian from."""
    arguments = ("apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages", "Origin: Debian")
    for line in _run(*arguments).splitlines():
        if re.fullmatch(r"\S+/debian/?", line):
            return line
    raise BrokerFailed("apt knows no mirror of Debian, so no base image can be made")


def _kafka_root() -> bytes:
    """Kafka as its public image has it: its tools by their names, and the start that obeys the `KAFKA_*` variables."""
    libs = resolved_libs()
    files = {**FILES, **{f"opt/kafka/bin/kafka-{_dashed(tool)}.sh": _script(tool) for tool in JavaTool}}
    packed = BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for directory in (*EMPTY_DIRECTORIES, "var/lib/kafka/data"):
            tar.addfile(entry(directory, tarfile.DIRTYPE))
        for name, text in files.items():
            tar.addfile(entry(name, tarfile.REGTYPE, size=len(text.encode())), BytesIO(text.encode()))
        for part in libs.java_home.iterdir():
            if part.name not in LEFT_OUT_OF_JAVA:
                tar.add(part, f"opt/java/{part.name}")
        for jar in libs.directory.iterdir():
            tar.add(jar, f"opt/kafka/libs/{jar.name}")
    return packed.getvalue()


def _dashed(tool: JavaTool) -> str:
    return tool.name.lower().replace("_", "-")


def _script(tool: JavaTool) -> str:
    log = "-Dlog4j2.configurationFile=/etc/kafka/docker/tools-log4j2.yaml"
    return f"#!/bin/sh\nexec java $KAFKA_HEAP_OPTS {log} -cp '/opt/kafka/libs/*' {tool.value} \"$@\"\n"


def _run(*command: str | Path, at: Path | None = None) -> str:
    done = subprocess.run(command, cwd=at, capture_output=True, text=True, check=False, timeout=MADE_WITHIN_S)
    if done.returncode:
        raise BrokerFailed(f"{command[0]} failed: {(done.stderr or done.stdout).strip().splitlines()[-1:]}")
    return done.stdout
