"""The long form: `docker compose up` as the file's header says, and everything is visible; `make compose` runs it.

Images that no registry provides are built here (`stand_ins.py`). Without an image of Grafana the rest is started, and
the dashboard's queries are sent to Prometheus itself. It takes some minutes, most of them for the images.
"""

import json
import os
import re
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import docker
import pytest

from tests.deploy import stand_ins
from tests.deploy.test_alerts import queries
from tests.waiting import until_so

pytestmark = [pytest.mark.broker, pytest.mark.timeout(3_600)]

ROOT: Final = Path(__file__).parents[2]
GRAFANA: Final = "grafana"
IMAGE: Final = "muster-try:local"
COMMAND_ENDS_WITHIN_S: Final = 1_200
SEEN_WITHIN_S: Final = 600
"""Generous: on a quiet machine all of it is there within two minutes."""
ENDINGS: Final = {"leaving", "crashing"}
"""The consumers that make the group rebalance, by client id."""

ARRIVALS: Final = {"start", "scale-up"}
"""The kinds of incidents that have no member that ended."""


class Compose:
    """`docker compose` in this checkout, and how long after the start each thing was there."""

    def __init__(self, environment: dict[str, str]) -> None:
        self._environment = environment
        self._began_s = time.monotonic()

    def run(self, *arguments: str) -> str:
        """Return its output. Raises AssertionError with the output if it fails."""
        command = ["docker", "compose", *arguments]
        done = subprocess.run(
            command,
            cwd=ROOT,
            env=self._environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=COMMAND_ENDS_WITHIN_S,
        )
        assert done.returncode == 0, f"{' '.join(command)}: {(done.stdout + done.stderr)[-3_000:]}"
        return done.stdout

    def start(self, services: list[str]) -> None:
        """Make Muster's image, then begin to count the seconds."""
        self.run("build")
        self._began_s = time.monotonic()
        self.run("up", "--detach", "--no-build", *services)
        self.report("docker compose up returned: the broker and Muster are healthy")

    def wait_for(self, what: str, condition: Callable[[], object]) -> None:
        until_so(condition, what, within_s=SEEN_WITHIN_S)
        self.report(what)

    def report(self, what: str) -> None:
        """For people: `pytest` shows it with -s."""
        sys.stdout.write(f"{time.monotonic() - self._began_s:6.1f} s  {what}\n")

    def healthy(self) -> set[str]:
        return {each["Service"] for each in self._processes() if each["Health"] == "healthy"}

    def running(self) -> set[str]:
        return {each["Service"] for each in self._processes() if each["State"] == "running"}

    def _processes(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.run("ps", "--format", "json").splitlines()]

    def incidents(self) -> list[dict[str, Any]]:
        """Incidents of the group, as `muster replay why` in the container prints them."""
        reported = self.run("exec", "-T", "muster", "muster", "replay", "why", "billing", "--all", "--format", "jsonl")
        return [json.loads(line) for line in reported.splitlines()]


def get(address: str) -> Any:
    """The JSON at an address that compose.yaml publishes."""
    with urllib.request.urlopen(f"http://{address}", timeout=30) as answer:
        return json.load(answer)


def series(query: str) -> list[dict[str, Any]]:
    """The series that Prometheus has for a query; none while it does not answer."""
    try:
        answer = get("127.0.0.1:9090/api/v1/query?" + urllib.parse.urlencode({"query": query}))
    except (ConnectionError, urllib.error.URLError):
        return []
    assert answer["status"] == "success", query
    return list(answer["data"]["result"])


def filled(query: str) -> str:
    """A query of the dashboard as Grafana asks it, with all services and instances chosen."""
    query = re.sub(r"\$(service|instance)", ".*", query.replace("$__rate_interval", "1m"))
    named = re.fullmatch(r"label_values\((.*), \w+\)", query)
    return named[1] if named else query


@pytest.fixture(scope="module")
def engine() -> Iterator[docker.DockerClient]:
    with closing(docker.from_env(timeout=COMMAND_ENDS_WITHIN_S)) as client:
        yield client


@pytest.fixture(scope="module")
def compose(engine: docker.DockerClient, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Compose]:
    # Under its own names: a Muster that a developer runs on this machine keeps its volumes and its image.
    environment = {**os.environ, "COMPOSE_PROJECT_NAME": "muster-try", "MUSTER_IMAGE": IMAGE}
    if subprocess.run(["docker", "compose", "version"], capture_output=True, check=False).returncode:
        configuration = tmp_path_factory.mktemp("docker")
        stand_ins.plugins(engine, configuration)
        environment["DOCKER_CONFIG"] = str(configuration)
    found = Compose(environment)
    services = json.loads(found.run("config", "--format", "json"))["services"]
    bases = {each["build"]["args"]["BASE_IMAGE"] for each in services.values() if "build" in each}
    missing = stand_ins.missing(engine, bases | {each["image"] for each in services.values() if "build" not in each})
    try:
        without = stand_ins.make(engine, missing)
        try:
            found.start([name for name, each in services.items() if each["image"] not in without])
            yield found
        finally:
            found.run("down", "--volumes", "--timeout", "10")
    finally:
        stand_ins.remove(engine, {*missing, IMAGE})


def test_everything_the_header_promises_is_visible(compose: Compose) -> None:
    """The broker, Muster, the metrics, the dashboard's series, rebalances, and why."""
    assert {"kafka", "muster"} <= compose.healthy()
    compose.wait_for("Prometheus scrapes Muster", lambda: series('up{job="muster"} == 1'))
    compose.wait_for("the group has rebalanced", lambda: series("sum(muster_rebalances_total) > 0"))
    compose.wait_for("`why` blames each consumer that ends", lambda: blamed(compose) >= ENDINGS)
    for incident in compose.incidents():
        compose.report(f"why: {incident['kind']} ({incident['grade']}): {incident['headline']}")
    assert "All is well." in compose.run("exec", "-T", "muster", "muster", "status", "127.0.0.1:9100")
    compose.wait_for("most panels have series", lambda: len(with_series()) > len(queries()) // 2)
    empty = set(queries()) - set(with_series())
    compose.report(f"{len(empty)} of {len(queries())} queries of the dashboard have no series yet: {sorted(empty)}")
    if GRAFANA in compose.running():
        compose.wait_for("Grafana has the dashboard", lambda: get("127.0.0.1:3000/api/dashboards/uid/muster"))
        assert get("127.0.0.1:3000/api/datasources/proxy/uid/prometheus/api/v1/query?query=up")["status"] == "success"
    else:
        compose.report("no image of Grafana can be had here: it was not started")


def blamed(compose: Compose) -> set[str]:
    """The client ids of the members whose ends are what incidents are about."""
    incidents = [each for each in compose.incidents() if each["kind"] not in ARRIVALS]
    return {culprit["client_id"] for each in incidents for culprit in each["culprits"]}


def with_series() -> list[str]:
    """The dashboard queries that have series now; Prometheus must accept each query."""
    return [query for query in queries() if series(filled(query))]
