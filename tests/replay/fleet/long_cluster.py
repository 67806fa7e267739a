"""The long form: a standalone cluster of a master and two workers, a packed environment, a real broker.

The workers have a Python of their own, without this checkout: their imports come from `--archives`. It takes some
minutes; `make cluster` runs it.
"""

import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import msgspec
import pyspark
import pytest

import muster
from muster.events.kafka.security import NOT_SECURED
from muster.events.log.kafka.log import KafkaEventLog
from muster.replay.archive.verify import verify
from muster.replay.fleet.archive.connector import PACKAGE
from muster.replay.fleet.building.local import LocalEngine
from muster.replay.fleet.simulation import spool
from muster.replay.fleet.simulation.sinks import TopicSink
from muster.replay.fleet.tables.builds import current
from tests.brokers.broker import Broker
from tests.events.log.on_broker.proxied import new_topic_name
from tests.replay.archive.logs import archived
from tests.replay.fleet.fleets import all_tables
from tests.replay.fleet.simulated import fleet
from tests.replay.fleet.test_week import tables_of
from tests.waiting import until_so

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.timeout(1_800)]

ROOT = Path(__file__).parents[3]
SPARK_HOME = Path(pyspark.__file__).parent
SCRIPT = Path(muster.__file__).parent / "__main__.py"
PYTHON = "./environment/bin/python"
EXTRA = ("--constraint", str(ROOT / "requirements.lock"), "pyarrow", "duckdb", "pandas")

WHERE = """
import json, sys
from muster.replay.fleet.session import spark_session

def look(_numbers):
    import muster
    yield sys.executable, muster.__file__, [path for path in sys.path if path]

session = spark_session("unused")
print("WHERE " + json.dumps(session.sparkContext.parallelize(range(4), 4).mapPartitions(look).collect()))
"""


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pack the environment as in docs/fleet-spark.md."""
    folder = tmp_path_factory.mktemp("environment")
    uv = [sys.executable, "-m", "uv"]
    made, version = folder / "environment", f"{sys.version_info[0]}.{sys.version_info[1]}"
    for command in (
        [*uv, "venv", "--quiet", "--relocatable", "--python", version, str(made)],
        [*uv, "pip", "install", "--quiet", "--python", str(made / "bin" / "python"), str(ROOT), *EXTRA],
        ["tar", "-C", str(made), "-czf", str(folder / "environment.tar.gz"), "."],
    ):
        subprocess.run(command, check=True, timeout=900)
    return folder / "environment.tar.gz"


class Standalone:
    """A master and two workers on 127.0.0.1, and jobs submitted to them."""

    def __init__(self, folder: Path, java_home: Path, environment: Path) -> None:
        self._folder, self._environment = folder, environment
        clean = {"PATH": "/usr/bin:/bin", "HOME": str(folder), "SPARK_LOCAL_IP": "127.0.0.1", "LANG": "C.UTF-8"}
        self._daemons = {**clean, "JAVA_HOME": str(java_home), "SPARK_HOME": str(SPARK_HOME)}
        self.master = f"spark://127.0.0.1:{free_port()}"

    @contextmanager
    def running(self) -> Iterator["Standalone"]:
        """Start them, and end them with all their children."""
        host, _, port = self.master.removeprefix("spark://").rpartition(":")
        with ExitStack() as ended:
            ended.enter_context(
                self._daemon("master.Master", "--host", host, "--port", port, "--webui-port", "0", log="master")
            )
            for name in ("worker-1", "worker-2"):
                (work := self._folder / name).mkdir()
                place = ("--host", host, "--webui-port", "0", "--work-dir", str(work))
                ended.enter_context(self._daemon("worker.Worker", *place, "-c", "1", "-m", "1g", self.master, log=name))
            master = self._folder / "master.log"
            until_so(lambda: master.read_text().count("Registering worker") == 2, master.read_text, within_s=120)
            yield self

    @contextmanager
    def _daemon(self, name: str, *args: str, log: str) -> Iterator[None]:
        command = [str(SPARK_HOME / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}", *args]
        with (self._folder / f"{log}.log").open("w") as output:
            process = subprocess.Popen(
                command, stdout=output, stderr=subprocess.STDOUT, env=self._daemons, cwd=self._folder
            )
        try:
            yield
        finally:
            process.terminate()
            process.wait(60)

    def submit(self, *args: str, packages: str | None = None) -> str:
        """Run `spark-submit` with the packed environment; return its output."""
        command = [str(Path(sys.executable).parent / "spark-submit"), "--master", self.master]
        command += ["--archives", f"{self._environment}#environment"]
        command += [] if packages is None else ["--packages", packages]
        driver = {"PYSPARK_PYTHON": PYTHON, "PYSPARK_DRIVER_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        done = subprocess.run(
            [*command, *args],
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
            cwd=self._folder,
            env={**os.environ, **driver, "JAVA_HOME": self._daemons["JAVA_HOME"], "PATH": path},
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr


def free_port() -> int:
    with socket.socket() as requested:
        requested.bind(("127.0.0.1", 0))
        port: int = requested.getsockname()[1]
        return port


@pytest.fixture
def cluster(tmp_path: Path, java_home: Path | None, environment: Path) -> Iterator[Standalone]:
    """Start a cluster."""
    home = java_home or Path(os.environ.get("JAVA_HOME") or Path("/usr/bin/java").resolve().parents[1])
    (folder := tmp_path / "cluster").mkdir()
    with Standalone(folder, home, environment).running() as running:
        yield running


async def test_a_cluster_archives_and_builds_as_this_process_does(
    cluster: Standalone, kafka_broker: Broker, tmp_path: Path
) -> None:
    """Its workers import Muster only from the environment; their archive and tables are those of the local engine."""
    (script := tmp_path / "where.py").write_text(WHERE)
    (line,) = (each for each in cluster.submit(str(script)).splitlines() if each.startswith("WHERE "))
    for python, package, paths in msgspec.json.decode(line.removeprefix("WHERE ")):
        for path in (python, package, *paths):
            assert str(ROOT) not in path.replace(str(SPARK_HOME), ""), path
        assert "/environment/lib/" in package

    topic = new_topic_name()
    (spooled := tmp_path / "spool").mkdir()
    what = fleet(20, 2)
    spool.play(what, spooled, tmp_path / "truth", jobs=2, watch=lambda _done, _total: None)
    url = f"kafka://{kafka_broker.bootstrap}/{topic}"
    await asyncio.to_thread(TopicSink(fleet=what, url=url, security=NOT_SECURED).write, spooled, lambda _records: None)
    there, here = tmp_path / "there", tmp_path / "here"
    to_archive = ("fleet", "archive", "--engine", "spark", "--log", url, "--to", str(there / "archive"))
    reported = cluster.submit(str(SCRIPT), *to_archive, packages=PACKAGE)
    assert f" at {cluster.master}, 2 tasks at once" in reported
    to_tables = ("fleet", "build", "--engine", "spark", "--archive", str(there / "archive"), "--to", str(there / "t"))
    reported = cluster.submit(str(SCRIPT), *to_tables)
    assert "DAGScheduler" not in reported

    log = KafkaEventLog([kafka_broker.bootstrap], topic, read_only=True)
    await log.open()
    await archived(log, here / "archive", now_ms=None)
    found = await verify(there / "archive", log, watch=lambda _done, _total: None)
    assert (found.damage, found.compared) == ((), found.records)
    await log.close()
    await tables_of(f"archive:{here}/archive", here / "t", LocalEngine())
    assert current(there / "t").engine == "spark"
    assert all_tables(there / "t") == all_tables(here / "t")
    assert current(there / "t").rows("rebalances") > 100
