"""The processes of one host: an owner, and frontends that share its addresses."""

from pathlib import Path
from typing import Any

import pytest

from muster.coordinator.processes.children import children
from muster.coordinator.settings.loading import BadSettings, load_settings

GIVEN = ("serve", "--processes", "2", "--upstream", "kafka:9092", "--metrics", "0.0.0.0:9100")
SECRET = Path("/run/secret")


def refused(**flags: Any) -> str:
    with pytest.raises(BadSettings) as bad:
        load_settings({"upstream": "kafka:9092", "processes": 2, **flags}, [], None)
    return str(bad.value)


def test_each_is_started_as_the_first_was_and_with_a_role_of_its_own() -> None:
    """The last value of a repeated option counts, as it may have been given before."""
    settings = load_settings({"upstream": "kafka:9092", "processes": 2}, [], None)
    owner, first, second = children(settings, GIVEN, secret=SECRET)
    of_each = ("--peer-secret-file", str(SECRET), "--metrics", "127.0.0.1:0")
    assert [each.name for each in (owner, first, second)] == ["owner", "edge-1", "edge-2"]
    loopback = ("--peer-listen", "127.0.0.1:0")
    shared = (*GIVEN, "--share-partitions")
    assert owner.arguments == (
        *(*shared, "--processes", "1", "--role", "owner", "--node-id", "1"),
        *(*of_each, *loopback),
    )
    assert first.arguments == (
        *(*shared, "--reuse-port", "--processes", "1", "--role", "edge", "--node-id", "1000001"),
        *(*of_each, *loopback),
    )
    assert second.arguments[second.arguments.index("--node-id") + 1] == "2000001"


def test_other_hosts_reach_the_owner_at_its_configured_address(tmp_path: Path) -> None:
    """The frontends are not reachable from other hosts."""
    secret = tmp_path / "secret"
    secret.write_text("0123456789abcdef")
    flags = {"share_partitions": True, "node_id": 7, "peer_listen": "10.0.0.7:9500", "peer_secret_file": secret}
    settings = load_settings({"upstream": "kafka:9092", "processes": 2, **flags}, [], None)
    owner, frontend, _ = children(settings, (), secret=secret)
    assert "--peer-listen" not in owner.arguments
    assert "--peer-listen" in frontend.arguments
    assert owner.arguments[owner.arguments.index("--node-id") + 1] == "7"


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        ({"role": "edge"}, "--role and --processes 2 contradict each other: each gets its own"),
        ({"reuse_port": True}, "--reuse-port and --processes 2 contradict each other: they share their ports anyway"),
        ({"log": "sqlite:///muster.db"}, "--processes 2 needs an event log in Kafka, and --log is sqlite:///muster.db"),
        ({"listen": "127.0.0.1:0"}, "--listen 127.0.0.1:0 with --processes 2: name a port, which all of them have"),
        ({"share_partitions": True, "node_id": 1}, "--processes 2 with --share-partitions needs --peer-listen and"),
    ],
)
def test_options_that_processes_cannot_share_are_refused(flags: dict[str, Any], told: str) -> None:
    assert refused(**flags).splitlines()[0].startswith(told)


def test_a_standalone_process_is_one() -> None:
    with pytest.raises(BadSettings) as bad:
        load_settings({"processes": 2}, [], None)
    assert "--processes without --upstream" in str(bad.value)
