"""`muster serve` as a process: its errors about unusable settings, its admin port, and how it ends."""

import asyncio
import json
import signal
import socket
import sqlite3
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from muster.coordinator.group.configs import COORDINATOR
from muster.coordinator.settings.kafka_settings import KAFKA_SETTINGS
from muster.coordinator.settings.settings import Settings
from muster.events.kafka.link import CONFIG_OF_A_MUSTER
from tests.brokers.broker import HOST, lasting_ports
from tests.brokers.certificates import Authority
from tests.brokers.child import leashed, signal_group
from tests.clients.consumers import Confluent
from tests.clients.probe import described
from tests.conformance.wire import Connection, ms
from tests.forked import COMMAND, run_muster
from tests.muster_process import MusterProcess, last_words, running_muster, sqlite_log
from tests.replay import written
from tests.waiting import until_so

ENDS_WITHIN_S = 60
LOADING = 14


def refused(*arguments: str, **variables: str) -> str:
    """The one line with which `muster serve` refuses to start."""
    elsewhere = "MUSTER_LISTEN" in variables or "--config-file" in arguments
    listen = [] if elsewhere else ["--listen", f"{HOST}:0"]
    done = run_muster("serve", *listen, *arguments, variables=variables)
    lines = last_words(done.stderr)
    assert (done.returncode, done.stdout, len(lines)) == (2, "", 1), done.stderr
    assert "Traceback" not in done.stderr
    return lines[0]


@pytest.fixture
def serving(tmp_path: Path) -> Iterator[MusterProcess]:
    """A coordinator with a side door, on a log in a file."""
    with running_muster(log=sqlite_log(tmp_path), topics=["orders:1"], options=["--metrics", f"{HOST}:0"]) as running:
        yield running


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["--config", "group.max.sise=10"], ["group.max.sise", "did you mean group.max.size?"]),
        (["--config", "group.max.size=many"], ["group.max.size=many: should be a whole number"]),
        (["--config", "group.max.size"], ["KEY=VALUE"]),
        (["--topic", "orders:none"], ["orders:none", "NAME:PARTITIONS"]),
        (["--metrics", "9100"], ["--metrics=9100", "HOST:PORT"]),
        (["--log", "postgres://db"], ["postgres://db", "sqlite:///", "kafka://"]),
        (["--log", "sqlite://muster.db"], ["sqlite://muster.db", "three slashes"]),
        (["--log", "sqlite:////no/such/directory/muster.db"], ["/no/such/directory/muster.db"]),
        (
            ["--log", "memory:", "--config-file", "missing.toml"],
            [f"cannot read --config-file missing.toml in {Path.cwd()}: "],
        ),
        (["--groups", "orders-*", "--single-identity"], ["--groups, --single-identity without --upstream"]),
        (["--upstream", "kafka:9092", "--topic", "orders:1"], ["--topic", "--upstream"]),
        (["--upstream", "kafka:9092", "--upstream-config", "sasl.pasword=a"], ["did you mean sasl.password?"]),
        (["--upstream", "kafka:9092", "--tls-certificate", "no.pem", "--tls-key", "no.key"], ["no.pem", "No such"]),
        (["--upstream", "kafka:9092", "--listener-map", "1=9,2=9"], ["--listener-map=1=9,2=9", "port 9"]),
    ],
)
def test_unusable_settings_are_named(arguments: list[str], parts: list[str]) -> None:
    """One line with the thing and the way out; exit code 2."""
    line = refused(*arguments)
    assert [part for part in parts if part not in line] == [], line


def test_a_wrong_flag_is_named() -> None:
    """Typer names it, with the exit code of a wrong use and no traceback."""
    done = run_muster("serve", "--lissen", f"{HOST}:0")
    assert done.returncode == 2
    assert "--lissen" in done.stderr
    assert "--listen" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_port_that_is_taken_is_named(tmp_path: Path) -> None:
    """The log stays with its owner: the address is checked first."""
    with socket.create_server((HOST, 0)) as taken:
        address = f"{HOST}:{taken.getsockname()[1]}"
        done = run_muster("serve", "--listen", address, "--log", sqlite_log(tmp_path))
        assert done.returncode == 2
        assert f"--listen {address}" in done.stderr
        assert "in use" in done.stderr
        assert f"--metrics {address}" in refused("--log", "memory:", "--metrics", address)


def test_a_muster_that_is_named_as_the_cluster_is_refused(serving: MusterProcess) -> None:
    reported = refused("--upstream", serving.bootstrap, "--log", "memory:")
    assert f"--upstream {serving.bootstrap}: a Muster runs there, not a broker" in reported
    assert CONFIG_OF_A_MUSTER == COORDINATOR  # events/ may not import the name


def test_the_source_of_an_unusable_address_is_named(tmp_path: Path) -> None:
    """The variable or the file, since that is what has to be changed; another port only where a port is taken."""
    file = tmp_path / "muster.toml"
    with socket.create_server((HOST, 0)) as taken:
        address = f"{HOST}:{taken.getsockname()[1]}"
        file.write_text(f'listen = "{address}"\n')
        in_use = f"{address}: Address already in use; choose another port, 0 takes a free one"
        memory = ["--log", "memory:"]
        assert refused(*memory, MUSTER_LISTEN=address) == f"muster: MUSTER_LISTEN {in_use}"
        assert refused(*memory, MUSTER_METRICS=address) == f"muster: MUSTER_METRICS {in_use}"
        assert refused(*memory, "--config-file", str(file)) == f"muster: {file}: listen {in_use}"
    unknown = refused(*memory, MUSTER_LISTEN="nowhere.invalid:9092")
    assert unknown.startswith("muster: MUSTER_LISTEN nowhere.invalid:9092: ")
    assert "port" not in unknown


def test_the_source_of_an_unusable_log_or_topics_is_named() -> None:
    """As with addresses."""
    assert refused(MUSTER_LOG="postgres://db").startswith("muster: MUSTER_LOG: 'postgres://db' is not the URL")
    assert refused(MUSTER_TOPIC="a:1,a:2") == "muster: MUSTER_TOPIC=a:1,a:2: topic 'a' is declared twice"


@pytest.mark.parametrize("form", ["console", "json"])
def test_an_error_in_muster_itself_is_logged_with_its_traceback(form: str) -> None:
    """And ends with exit code 1, for its supervisor; the last line asks to report the bug."""
    broken = (
        "from muster import cli\n"
        "from muster.coordinator.settings import certificates\n"
        "async def check(_): raise KeyError('a bug of ours')\n"
        "certificates.Certificates.check, certificates.CHECK_INTERVAL_S = check, 0\n"
        "cli.main()\n"
    )
    options = ["serve", "--listen", f"{HOST}:0", "--log", "memory:", "--log-format", form]
    command = [sys.executable, "-c", broken, *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=ENDS_WITHIN_S, check=False)
    assert done.returncode == 1, done.stderr
    assert "Traceback (most recent call last)" in done.stderr
    assert "in check" in done.stderr
    (last,) = last_words(done.stderr.splitlines()[-1])
    assert last.startswith("muster: ended because of a bug in Muster, please report it")
    assert last.endswith("KeyError('a bug of ours')")


@pytest.mark.parametrize("arguments", [["--log", f"kafka://{HOST}:1/events"], ["--upstream", f"{HOST}:1"]])
def test_a_start_that_takes_its_time_is_not_a_loop_that_hangs(arguments: list[str]) -> None:
    """Modules that only this log or a sidecar needs are imported at the start, from a slow disk at times."""
    slow = (
        "import sys, time\n"
        "from muster import cli\n"
        "class Slow:\n"
        "    def find_spec(name, *_):\n"
        "        if name == 'aiokafka': time.sleep(3)\n"
        "sys.meta_path.insert(0, Slow)\n"
        "cli.main()\n"
    )
    command = [sys.executable, "-c", slow, "serve", "--listen", f"{HOST}:0", "--log-format", "json", *arguments]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as starting:
        assert starting.stderr is not None
        reported = []
        while "retrying" not in (event := json.loads(starting.stderr.readline())["event"]):
            reported.append(event)
        starting.terminate()
    assert not [event for event in reported if "event loop" in event]


def test_a_log_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    """Rather than read in part."""
    url = asyncio.run(written.sqlite_log(tmp_path / "muster.db"))
    with closing(sqlite3.connect(tmp_path / "muster.db", isolation_level=None)) as connection:
        connection.execute("UPDATE meta SET value = 99 WHERE name = 'format_level'")
    line = refused("--log", url)
    assert "99" in line
    assert "newer" in line


def test_a_file_that_is_not_a_log_is_refused(tmp_path: Path) -> None:
    """And is not modified."""
    (tmp_path / "muster.db").write_bytes(b"notes, not a database" * 100)
    assert str(tmp_path / "muster.db") in refused("--log", sqlite_log(tmp_path))
    assert (tmp_path / "muster.db").read_bytes().startswith(b"notes")


def test_a_second_process_on_one_file_is_refused(serving: MusterProcess, tmp_path: Path) -> None:
    """The first one serves on."""
    assert "muster.db" in refused("--log", sqlite_log(tmp_path))
    assert described(serving.bootstrap, "nobody")["error_code"] != LOADING


def test_a_group_with_a_broken_record_is_quarantined(tmp_path: Path) -> None:
    """It is named with file, partition and offset; another group of the same partition is served."""
    reported, partition = written.script("orders").created(), written.script("orders").partition
    neighbour = next(
        script for n in range(100) if (script := written.script(f"neighbour-{n}")).partition == partition
    ).created()
    url = asyncio.run(written.sqlite_log(tmp_path / "muster.db", reported, neighbour))
    with closing(sqlite3.connect(tmp_path / "muster.db", isolation_level=None)) as connection:
        connection.execute("UPDATE records SET value = x'00' WHERE partition = ? AND offset = 0", (partition,))
    with running_muster(log=url, options=["--metrics", f"{HOST}:0"]) as running:
        (event,) = running.events("group quarantined: a record of it cannot be read")
        assert (event["group_id"], event["log"]) == ("orders", str(tmp_path / "muster.db"))
        assert (event["partition"], event["offset"]) == (partition, 0)
        assert described(running.bootstrap, "orders")["error_code"] == LOADING
        assert described(running.bootstrap, neighbour.group_id)["group_state"] == "Empty"
        assert "muster_quarantined_groups 1.0" in running.asked("/metrics")


def test_the_side_door(serving: MusterProcess) -> None:
    """Counters for Prometheus, and whether it lives and serves."""
    assert serving.asked("/healthz") == "ok\n"
    assert serving.asked("/readyz") == "ready\n"
    described(serving.bootstrap, "nobody")
    lines = serving.asked("/metrics").splitlines()
    assert 'muster_requests_total{api="DescribeGroups",version="5"} 1.0' in lines
    assert "muster_partitions 8.0" in lines
    with pytest.raises(urllib.error.HTTPError, match="404"):
        serving.asked("/")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_stops_cleanly(serving: MusterProcess, number: signal.Signals) -> None:
    """With exit code 0, and a line that names the signal; the next process finds in the log that it stopped."""
    assert serving.stop(number) == 0
    assert [line["reason"] for line in serving.events("stopping")] == [number.name]


def test_a_deposed_process_ends(serving: MusterProcess, tmp_path: Path) -> None:
    """Another process owns the file: as soon as this one has to write, it logs that and ends with exit code 1."""
    with closing(sqlite3.connect(tmp_path / "muster.db", isolation_level=None)) as connection:
        connection.execute("UPDATE owners SET epoch = epoch + 1")
    consumer = Confluent(serving.bootstrap, "orders", "orders").start()
    assert serving.wait() == 1
    consumer.end()
    assert "deposed" in serving.output.splitlines()[-1]


def test_a_process_whose_file_was_moved_ends(serving: MusterProcess, tmp_path: Path) -> None:
    """It ends by itself with exit code 1; its last log line has the path and a remedy."""
    (tmp_path / "muster.db").rename(tmp_path / "elsewhere.db")
    assert serving.wait() == 1
    last = serving.output.splitlines()[-1]
    assert f"{tmp_path / 'muster.db'} no longer exists" in last
    assert "and restart" in last


def test_help_documents_every_option() -> None:
    """Each option has a sentence, and each setting that --config takes is named."""
    printed = " ".join(run_muster("serve", "--help").stdout.replace("│", " ").split())
    for name in Settings.model_fields.keys() - set(KAFKA_SETTINGS.values()):
        assert f"--{name.replace('_', '-')}" in printed
    for name in KAFKA_SETTINGS:
        assert name in printed


async def answers_while_it_waits(bootstrap: str) -> None:
    """It answers like a loading broker: metadata is available, groups are loading, and members are not disturbed."""
    connection = await Connection.open(bootstrap)
    try:
        assert (await connection.ask("ApiVersions", 0))["error_code"] == 0
        (broker,) = (await connection.ask("Metadata", 1, topics=None))["brokers"]
        found = await connection.ask("FindCoordinator", 4, key_type=0, coordinator_keys=["orders"])
        (coordinator,) = found["coordinators"]
        assert f"{coordinator['host']}:{coordinator['port']}" == f"{broker['host']}:{broker['port']}" == bootstrap
        join = {"group_id": "orders", "session_timeout": ms(10_000), "member_id": "", "protocol_type": "consumer"}
        assert (await connection.ask("JoinGroup", 0, **join, protocols=[]))["error_code"] == LOADING
        assert (await connection.ask("ListGroups", 0))["error_code"] == LOADING
        member = {"group_id": "orders", "generation_id": 3, "member_id": "m"}
        assert (await connection.ask("Heartbeat", 2, **member))["error_code"] == 0
        assert (await connection.ask("OffsetFetch", 5, group_id="orders", topics=None))["error_code"] == LOADING
    finally:
        connection.close()


def test_an_unavailable_log_is_awaited(tmp_path: Path) -> None:
    """Meanwhile /healthz is healthy, /readyz and one log line say what it waits for, and it stops when asked to.

    Clients get the answers of a loading broker, and changed certificates are reloaded.
    """
    (port,) = lasting_ports(1)
    log, output = f"kafka://{HOST}:{port}/events", tmp_path / "output"
    authority = Authority(tmp_path / "certificates")
    secured = [
        f"--kafka-config={each}" for each in ("security.protocol=SSL", f"ssl.ca.location={authority.certificate}")
    ]
    address = f"{HOST}:0"
    command = [*COMMAND, "--listen", address, "--log-format", "json", "--log", log, "--metrics", address, *secured]

    def events(name: str) -> list[dict[str, str]]:
        lines = [json.loads(line) for line in output.read_text().splitlines() if line.startswith("{")]
        return [line for line in lines if line["event"] == name]

    def wait_for(name: str) -> None:
        until_so(lambda: bool(events(name)), output.read_text, within_s=ENDS_WITHIN_S)

    with output.open("wb") as written_to, leashed(command, stdout=written_to) as leash:
        wait_for("event log unavailable, retrying")
        (listening,), (metrics,) = events("listening"), events("metrics")
        asyncio.run(answers_while_it_waits(listening["listen"]))
        authority.certificate.write_bytes(2 * authority.certificate.read_bytes())
        wait_for("certificates reloaded")
        with urllib.request.urlopen(f"http://{metrics['listen']}/healthz", timeout=ENDS_WITHIN_S) as well:
            assert well.status == 200
        with pytest.raises(urllib.error.HTTPError) as not_ready:
            urllib.request.urlopen(f"http://{metrics['listen']}/readyz", timeout=ENDS_WITHIN_S)
        reason = not_ready.value.read().decode()
        assert f"the event log {log} has been unavailable for " in reason
        assert f"no broker answers at {HOST}:{port}: " in reason
        signal_group(leash, signal.SIGTERM)
        assert leash.wait(timeout=ENDS_WITHIN_S) == 0
    (away,) = events("event log unavailable, retrying")
    assert away["log"] == log
