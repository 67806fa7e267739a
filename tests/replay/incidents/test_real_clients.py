"""Histories of real clients: the incidents match what was done in each session (`tests/replay/record_clients.py`)."""

import asyncio
from pathlib import Path

import pytest

from muster.events.ids import GroupId
from muster.events.kafka.security import NOT_SECURED
from muster.replay.incidents.incident import Incident
from muster.replay.logs.opening import open_for_reading
from muster.replay.text.times import wall_ms_of
from tests.replay.incidents.fleet import shown
from tests.replay.recorded import DATA, Done, sessions, truth_of
from tests.replay.whole import History, incidents, read_histories

SIGN_AT_MOST_MS = 10_000
"""An owner records every 5 s that it is alive, which may take 4 s."""


def history_in(path: Path, group: str) -> History:
    """Return the group's history in an export."""

    async def read() -> History:
        log = open_for_reading(str(path), security=NOT_SECURED)
        await log.open()
        try:
            return (await read_histories(log, group=GroupId(group)))[GroupId(group)]
        finally:
            await log.close()

    return asyncio.run(read())


def is_of(incident: Incident, done: Done) -> bool:
    return incident.kind in done.kinds and {each.client_id for each in incident.culprits} == set(done.processes)


@pytest.mark.parametrize("name", sessions())
def test_reports_match_the_ground_truth(name: str) -> None:
    """There is one incident for each deed, in order, and no other."""
    truth = truth_of(name)
    found = incidents(history_in(DATA / f"{name}.jsonl", truth.group))
    listing = "\n".join(map(shown, found))
    assert len(found) == len(truth.done), listing
    for incident, done in zip(found, truth.done, strict=True):
        assert is_of(incident, done), listing
        assert incident.grade != "unknown", listing


def test_an_outage_begins_at_the_last_sign_of_life() -> None:
    """The owner recorded that shortly before it was killed."""
    truth = truth_of("coordinator-restart")
    _, killed = truth.done
    _, outage = incidents(history_in(DATA / "coordinator-restart.jsonl", truth.group))
    last_sign = outage.chain[0]
    assert "its last sign of life" in last_sign.text
    assert killed.at is not None
    assert last_sign.at is not None
    assert 0 <= wall_ms_of(killed.at) - wall_ms_of(last_sign.at) <= SIGN_AT_MOST_MS


def test_the_incident_of_the_demos_second_process_is_reported() -> None:
    """It was started with the instance id of a live process."""
    found = incidents(history_in(DATA / "demo.jsonl", "billing"))
    statements = [each.text for incident in found for each in incident.chain]
    assert any(
        text.startswith("another process with the instance id 'billing-1' was alive, at 127.0.0.1")
        for text in statements
    )
