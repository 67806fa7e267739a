"""A broker in a container starts, applies its settings, and leaves nothing behind."""

import os
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

import docker
import pytest
from docker.errors import DockerException, ImageNotFound

from tests.brokers.broker import BrokerFailed, NoBroker
from tests.brokers.choice import running_broker
from tests.brokers.container import OWNER_LABEL, container_broker, environment_name
from tests.brokers.image import write_root
from tests.brokers.jars import REQUIRED_JARS, resolved_libs
from tests.brokers.probes import ROOT, broker_setting, produced_and_consumed
from tests.brokers.readiness import brokers_named_by


@pytest.fixture(scope="module")
def engine() -> Iterator[docker.DockerClient]:
    """The Docker engine; without one the tests of containers are skipped, and the summary says so."""
    try:
        client = docker.from_env(timeout=20)
    except DockerException as error:
        pytest.skip(f"NO DOCKER ENGINE ANSWERS, BROKERS IN CONTAINERS ARE NOT TESTED ({error})")
    yield client
    client.close()


class TestContainer:
    """A broker in a container."""

    def test_clients_produce_and_consume(self, engine: docker.DockerClient) -> None:
        """A record comes back; settings are in force; the container is gone afterwards."""
        before = own_containers(engine)  # other tests of this run may use one
        with running_broker(how="container", settings={"log.cleaner.min.compaction.lag.ms": "1234"}) as broker:
            assert broker.bootstrap.startswith("127.0.0.1:")
            assert "testcontainers" in broker.how
            assert produced_and_consumed(broker.bootstrap) == b"hello"
            assert broker_setting(broker.bootstrap, "group.initial.rebalance.delay.ms") == "50"
            assert broker_setting(broker.bootstrap, "log.cleaner.min.compaction.lag.ms") == "1234"
            assert brokers_named_by(broker.bootstrap) == [broker.bootstrap]
            assert len(own_containers(engine)) == len(before) + 1
        assert own_containers(engine) == before

    def test_an_image_of_the_users_own_is_not_replaced(
        self, engine: docker.DockerClient, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """An unavailable image that the user named is an error with its name."""
        with pytest.raises(ImageNotFound):
            engine.images.get("127.0.0.1:1/no-such-image:1")
        monkeypatch.setenv("MUSTER_KAFKA_IMAGE", "127.0.0.1:1/no-such-image:1")
        reason = r"container: the image 127\.0\.0\.1:1/no-such-image:1 cannot be pulled"
        with pytest.raises(NoBroker, match=reason), running_broker(how="container"):
            pytest.fail("a broker came up")

    def test_a_container_whose_owner_is_dead_is_removed_by_the_next_start(self, engine: docker.DockerClient) -> None:
        """A process is killed while its broker runs; the next broker removes it."""
        child = subprocess.Popen(
            [sys.executable, "-m", "tests.brokers", "--how", "container"], cwd=ROOT, stdout=subprocess.PIPE, text=True
        )
        with child:
            assert child.stdout is not None
            bootstrap = child.stdout.readline().strip()
            child.kill()
        assert brokers_named_by(bootstrap) == [bootstrap]
        with container_broker({}), pytest.raises((ConnectionRefusedError, ConnectionResetError)):
            brokers_named_by(bootstrap)

    def test_it_reports_that_no_engine_responds(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        """The reason is the engine, and it is known at once."""
        monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/no.sock")
        with pytest.raises(BrokerFailed, match="no Docker engine answers"), container_broker({}):
            pytest.fail("a broker came up")

    def test_settings_become_the_variables_of_kafkas_image(self) -> None:
        """The three characters that a variable cannot contain are encoded for Kafka's wrapper."""
        assert environment_name("log.dirs") == "KAFKA_LOG_DIRS"
        assert environment_name("a.b_c-d") == "KAFKA_A_B__C___D"

    @pytest.mark.skipif(sys.platform != "linux", reason="an image is built from the files of a Linux machine")
    def test_the_image_holds_what_a_broker_needs_once(self, tmp_path: Path) -> None:
        """The shell, the loader, Java and the jars are there, each path once, and no link leads out."""
        archive = tmp_path / "root.tar"
        write_root(archive, resolved_libs())
        with tarfile.open(archive) as tar:
            members = tar.getmembers()
        names = [member.name for member in members]
        assert len(names) == len(set(names))
        assert {"bin/sh", "tmp", "opt/java/bin/java", "opt/java/lib/server/libjvm.so"} <= set(names)
        assert {f"opt/kafka/libs/{jar}" for jar in REQUIRED_JARS} <= set(names)
        assert not [member.name for member in members if member.issym() and member.linkname.startswith("/")]


def own_containers(engine: docker.DockerClient) -> list[str]:
    """The names of the containers that this process owns."""
    found = engine.containers.list(all=True, filters={"label": OWNER_LABEL})
    return [each.name for each in found if each.labels[OWNER_LABEL].endswith(f":{os.getpid()}")]
