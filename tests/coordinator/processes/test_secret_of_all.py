"""The secret of the processes of one host: each reads it when needed, and nothing of it remains."""

import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from muster.coordinator.processes.supervisor import secret_of_all
from muster.coordinator.settings.loading import load_settings

READS = """
import sys
from pathlib import Path
from muster.coordinator.settings.peers import peer_secret
print(*{peer_secret("--peer-secret-file", Path(sys.argv[1])).decode() for _ in range(3)})
"""


def test_a_secret_that_is_made_has_no_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each process that inherits it can read it any number of times; others cannot, even after all were killed."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    settings = load_settings({"upstream": "kafka:9092", "processes": 2}, [], None)
    with secret_of_all(settings) as (file, inherited):
        output = {
            subprocess.run([sys.executable, "-c", READS, file], pass_fds=inherited, capture_output=True, check=True)
            .stdout.decode()
            .strip()
            for _ in range(2)
        }
        assert [len(each) for each in output] == [64]
        assert list(tmp_path.iterdir()) == []
        alone = subprocess.run([sys.executable, "-c", READS, file], capture_output=True, check=False)
        assert alone.returncode


def test_a_secret_that_was_given_is_the_one(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("0123456789abcdef")
    flags = {"share_partitions": True, "node_id": 7, "peer_listen": "127.0.0.1:9500", "peer_secret_file": secret}
    settings = load_settings({"upstream": "kafka:9092", "processes": 2, **flags}, [], None)
    with secret_of_all(settings) as given:
        assert given == (secret, ())
