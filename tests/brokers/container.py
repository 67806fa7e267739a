"""A broker in a container, through testcontainers, if there is a Docker engine.

It has the container's settings, network and end; `image.py` provides the image.

The settings are passed as the `KAFKA_*` variables of Kafka's own image. The broker needs its own address when it
starts, so a port of 127.0.0.1 is chosen first, and is the same inside and outside. An engine without a bridge network
(a sandbox may not allow one) runs the container in the host's network instead.

testcontainers has a reaper for containers whose owner was killed, but it is an image too, which not every machine can
pull; it is switched off. A container has labels with its owner's host and process id, and the next start removes
orphans.
"""

import os
import platform
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from typing import Final

import docker
import requests
from docker.errors import APIError, DockerException, NotFound
from testcontainers.core.config import testcontainers_config
from testcontainers.core.container import DockerContainer

from tests.brokers.broker import (
    HOST,
    JVM_OPTIONS,
    NO_BROKERS,
    NO_BROKERS_VARIABLE,
    TEST_SETTINGS,
    Broker,
    BrokerFailed,
    Node,
    free_ports,
    kraft_settings,
    start_failure,
)
from tests.brokers.image import usable_image
from tests.brokers.readiness import NotReady, wait_until_answering

ENGINE_ANSWERS_WITHIN_S: Final = 20
OWNER_LABEL: Final = "muster.tests.owner"


@contextmanager
def container_broker(settings: Mapping[str, str], jvm_options: Sequence[str] = JVM_OPTIONS) -> Iterator[Broker]:
    """A broker with `settings` over the test settings. Raises `BrokerFailed` with the end of its log."""
    with closing(_engine()) as client:
        try:
            _remove_orphans(client)
            image = usable_image(client)
            bridged = bool(client.networks.list(names=["bridge"]))
            version = client.version()["Version"]
        except (DockerException, requests.RequestException) as error:
            raise BrokerFailed(f"the Docker engine refused: {error}") from error
    port, controller_port = free_ports(2)
    container = _described(image, settings, port=port, controller_port=controller_port, bridged=bridged)
    heap, *others = jvm_options
    container.with_env("KAFKA_HEAP_OPTS", heap)
    container.with_env("KAFKA_JVM_PERFORMANCE_OPTS", " ".join(others))
    try:
        _start(container, port)
        how = f"Kafka in a container of {image} (testcontainers, Docker engine {version})"
        yield Broker(bootstrap=f"{HOST}:{port}", how=how)
    finally:
        with suppress(NotFound):
            container.stop()


def _engine() -> docker.DockerClient:
    if NO_BROKERS_VARIABLE in os.environ:
        raise BrokerFailed(NO_BROKERS)
    # The reaper is started with a container, so this is early enough.
    testcontainers_config.ryuk_disabled = True
    try:
        client = docker.from_env(timeout=ENGINE_ANSWERS_WITHIN_S)
    except DockerException as error:
        raise BrokerFailed(f"no Docker engine answers ({error})") from error
    return client


def _described(
    image: str, settings: Mapping[str, str], *, port: int, controller_port: int, bridged: bool
) -> DockerContainer:
    listen_host = "0.0.0.0" if bridged else HOST
    node = Node(ports={"PLAINTEXT": port}, controller_port=controller_port)
    base = kraft_settings(node, log_dir="/tmp/kafka-logs", listen_host=listen_host)
    container = DockerContainer(image)
    for key, value in {**base, **TEST_SETTINGS, **settings}.items():
        container.with_env(environment_name(key), value)
    labels = {OWNER_LABEL: f"{platform.node()}:{os.getpid()}"}
    if not bridged:
        return container.with_kwargs(network_mode="host", labels=labels)
    container.with_kwargs(labels=labels)
    # Not `with_bind_ports`, which binds all addresses of this machine.
    container.ports[f"{port}/tcp"] = (HOST, port)  # type: ignore[assignment]
    return container


def environment_name(setting: str) -> str:
    """The variable of a broker setting in Kafka's image: `log.dirs` is `KAFKA_LOG_DIRS`."""
    escaped = setting.replace("_", "__").replace("-", "___").replace(".", "_")
    return f"KAFKA_{escaped.upper()}"


def _start(container: DockerContainer, port: int) -> None:
    try:
        container.start()
        wait_until_answering(f"{HOST}:{port}", alive=lambda: _runs(container))
    except (DockerException, requests.RequestException) as error:
        raise start_failure(f"the container did not start: {error}") from error
    except NotReady as error:
        log = b"".join(container.get_logs()).decode(errors="replace")
        raise start_failure(f"the broker's container did not get ready: {error}", log=log) from error


def _runs(container: DockerContainer) -> bool:
    container.reload()
    return container.status in {"created", "running"}


def _remove_orphans(client: docker.DockerClient) -> None:
    """Remove the containers whose owner, a process on this machine, has ended without removing them."""
    for container in client.containers.list(all=True, filters={"label": OWNER_LABEL}):
        host, _, process_id = container.labels[OWNER_LABEL].rpartition(":")
        if host != platform.node() or _process_exists(int(process_id)):
            continue
        try:
            container.remove(force=True, v=True)
        except NotFound:
            continue  # another worker was faster
        except APIError as error:
            if error.status_code != requests.codes.conflict:  # conflict: another worker is removing it
                raise


def _process_exists(process_id: int) -> bool:
    try:
        os.kill(process_id, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
