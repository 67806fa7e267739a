"""The settings of several sidecars: missing, contradictory and refused ones."""

import os
from pathlib import Path
from typing import Any

import pytest

from muster.coordinator.settings.loading import BadSettings, load_settings
from muster.coordinator.settings.settings import Settings
from tests.brokers.certificates import Authority


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    file = tmp_path / "secret"
    file.write_text("0123456789abcdef\n")
    return file


def shared(secret: Path | None, **flags: Any) -> Settings:
    given = {"upstream": "kafka:9092", "share_partitions": True, "node_id": 3, "peer_listen": "127.0.0.1:9500"}
    return load_settings({**given, "peer_secret_file": secret, **flags}, [], None)


def refused(secret: Path | None, **flags: Any) -> str:
    with pytest.raises(BadSettings) as bad:
        shared(secret, **flags)
    return str(bad.value)


def test_sidecars_that_share_a_log_have_a_secret(secret: Path) -> None:
    """White space around it is ignored: the command that creates it ends its line."""
    settings = shared(secret)
    assert settings.peer_secret() == b"0123456789abcdef"
    assert settings.peer_tls() is None
    secret.write_text("another-secret-of-them")
    assert settings.peer_secret() == b"another-secret-of-them"


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        ({"peer_listen": None}, "--share-partitions with --upstream needs --peer-listen: "),
        ({"peer_secret_file": None}, "--share-partitions with --upstream needs --peer-secret-file: "),
        ({"node_id": None}, "--share-partitions needs --node-id, another one for each process of the log"),
        ({"log": "sqlite:///muster.db"}, "--share-partitions needs an event log in Kafka, and --log is sqlite:///"),
        ({"peer_listen": "0.0.0.0:9500"}, "--peer-listen 0.0.0.0:9500: other processes cannot be told that address"),
        ({"peer_listen": "10.0.0.7:9500"}, "--peer-listen 10.0.0.7:9500 without TLS is for this host alone, 127.0.0.1"),
        ({"peer_listen": "muster-1:9500"}, "--peer-listen muster-1:9500 without TLS is for this host alone"),
        ({"peer_tls_key": Path("key.pem")}, "--peer-tls-key also needs --peer-tls-certificate and --peer-tls-ca"),
    ],
)
def test_missing_or_invalid_settings_are_reported(secret: Path, flags: dict[str, Any], told: str) -> None:
    assert refused(secret, **flags).splitlines()[0].startswith(told)


def test_an_edge_needs_no_node_id_of_its_own(secret: Path) -> None:
    """There may be one beside each application, uncounted: it picks a random id, far from theirs."""
    ids = {shared(secret, node_id=None, role="edge").node_id for _ in range(20)}
    assert len(ids) == 20
    assert all(1_000_000_000 < each < 2**31 for each in ids)
    assert shared(secret, role="edge").node_id == 3


def test_an_unusable_secret_is_reported(secret: Path, tmp_path: Path) -> None:
    """A short one, with the command that creates one; and a missing file."""
    secret.write_text("short")
    assert refused(secret).startswith(f"--peer-secret-file={secret}: a secret of 5 bytes, 16 are needed; make one with")
    nowhere = tmp_path / "nowhere"
    assert refused(nowhere) == f"--peer-secret-file={nowhere}: it cannot be read: {os.strerror(2)}"


@pytest.mark.parametrize("flag", ["role", "peer_listen", "peer_advertise", "peer_secret_file", "node_id"])
def test_a_process_that_does_not_share_rejects_them(secret: Path, flag: str) -> None:
    value = {"peer_secret_file": secret, "node_id": 2, "role": "edge"}.get(flag, "127.0.0.1:9500")
    with pytest.raises(BadSettings) as bad:
        load_settings({"upstream": "kafka:9092", flag: value}, [], None)
    assert f"--{flag.replace('_', '-')} without --share-partitions" in str(bad.value)


def test_other_hosts_are_reached_by_tls(secret: Path, tmp_path: Path) -> None:
    """Both ends present a certificate, and require one."""
    authority = Authority(tmp_path / "authority")
    issued = authority.issue("muster")
    tls = shared(
        secret,
        peer_listen="10.0.0.7:9500",
        peer_tls_certificate=issued.certificate,
        peer_tls_key=issued.key,
        peer_tls_ca=authority.certificate,
    ).peer_tls()
    assert tls is not None
    assert tls.accepting.verify_mode == tls.connecting.verify_mode == 2
    assert refused(
        secret,
        peer_tls_certificate=issued.certificate,
        peer_tls_key=issued.certificate,
        peer_tls_ca=authority.certificate,
    ).startswith("--peer-tls-key=")
