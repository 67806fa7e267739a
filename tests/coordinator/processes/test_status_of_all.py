"""The combined status of several processes of one host: problems of any process are shown, not only the owner's."""

from pathlib import Path
from typing import Final

import msgspec
import pytest

from muster.coordinator.observability.status import LinksStatus, LinkStatus, OwnershipStatus, ProcessStatus
from muster.coordinator.processes import supervisor
from muster.coordinator.processes.children import children
from muster.coordinator.processes.running import RunningProcess
from muster.coordinator.settings.loading import load_settings

SETTINGS: Final = load_settings({"upstream": "kafka:9092", "processes": 2}, [], None)
OWNER: Final = ProcessStatus(
    version="1",
    mode="sidecar",
    node_id=SETTINGS.node_id,
    listen="l:1",
    log="log",
    upstream="kafka:9092",
    uptime_ms=5,
    not_ready=None,
    not_well=None,
    ownership=OwnershipStatus(log_identity="log-1", log_partitions=8),
)
CUT: Final = LinksStatus(
    to=[LinkStatus(node_id=1, address="o:1", reached=False, error="another secret")], no_owner_reached_ms=30_000
)
REACHES: Final = LinksStatus(to=[LinkStatus(node_id=1, address="o:1", reached=True)])
SILENT: Final = (503, "it does not answer: timed out")


def combined_status(monkeypatch: pytest.MonkeyPatch, answers: dict[str, ProcessStatus | None]) -> ProcessStatus:
    """The combined status if the processes return these; None: the process hangs."""

    def ask(process: RunningProcess, path: str) -> tuple[int, str]:
        assert path == "/status"
        status = answers[process.child.name]
        if status is None:
            return SILENT
        return 200, msgspec.json.encode(status).decode()

    monkeypatch.setattr(supervisor, "_ask", ask)
    running = [RunningProcess(each) for each in children(SETTINGS, (), secret=Path("/secret"))]
    return msgspec.json.decode(supervisor.status_of_all(SETTINGS, running), type=ProcessStatus)


def frontend(links: LinksStatus, not_ready: str | None = None) -> ProcessStatus:
    return msgspec.structs.replace(OWNER, node_id=1_000_001, links=links, not_ready=not_ready)


def test_when_all_is_well_it_is_the_owners(monkeypatch: pytest.MonkeyPatch) -> None:
    reported = combined_status(monkeypatch, {"owner": OWNER, "edge-1": frontend(REACHES), "edge-2": frontend(REACHES)})
    assert msgspec.json.encode(reported) == msgspec.json.encode(msgspec.structs.replace(OWNER, links=REACHES))


def test_an_edge_that_reaches_no_owner_is_seen_behind_an_owner_that_is_well(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reported = combined_status(
        monkeypatch, {"owner": OWNER, "edge-1": frontend(REACHES), "edge-2": frontend(CUT, "no owner")}
    )
    assert (reported.not_ready, reported.links, reported.ownership.log_identity) == ("edge-2: no owner", CUT, "log-1")


def test_an_owner_that_hangs_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The addresses that are known without it are listed, too."""
    reported = combined_status(monkeypatch, {"owner": None, "edge-1": frontend(REACHES), "edge-2": frontend(REACHES)})
    assert reported.not_ready == reported.not_well == "owner: it does not answer: timed out"
    assert (reported.node_id, reported.upstream, reported.ownership.log_partitions) == (
        SETTINGS.node_id,
        "kafka:9092",
        0,
    )


def test_a_process_that_is_being_started_is_not_ready_and_not_unwell() -> None:
    """Otherwise an orchestrator that restarts unhealthy processes would never let a slow machine finish starting."""
    running = [RunningProcess(each) for each in children(SETTINGS, (), secret=Path("/secret"))]
    reported = msgspec.json.decode(supervisor.status_of_all(SETTINGS, running), type=ProcessStatus)
    started = "owner: it is being started; edge-1: it is being started; edge-2: it is being started"
    assert (reported.not_ready, reported.not_well) == (started, None)
    assert supervisor._complaints(running, "/readyz") == started
    assert supervisor._complaints(running, "/healthz") is None
