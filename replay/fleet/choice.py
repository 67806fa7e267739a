"""Chooses the engine for a build or the archiver, with the reason; checks that the extra, Spark and Java are installed.

Java is checked before Spark is started, whose own error is a page long.
"""

import importlib.util
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Final

import msgspec

from muster.replay.commands.opening import CANNOT_READ, fail
from muster.replay.fleet.asked import EngineName
from muster.replay.text.grammar import size_text

JAVA_VERSIONS: Final = (17, 21)

LOCAL_BYTES_MAX: Final = 300 * 1024 * 1024
"""Up to this size, folding in this process finishes before Spark's workers have started, or soon after."""

LOCAL_RECORDS_MAX: Final = 5_000_000
"""Up to this number, this process archives in a few minutes, so starting Spark is not worth it."""


def check_needs(*names: str) -> None:
    """End the command unless these packages of the extra are installed; by default those that a build needs."""
    missing = [name for name in names or ("pyarrow", "duckdb") if importlib.util.find_spec(name) is None]
    if missing:
        fail(f"{' and '.join(missing)} missing: pip install '.[fleet]' in Muster's checkout", CANNOT_READ)


class NoJava(Exception):
    """Spark cannot run here; the message says what is missing and how to get it."""


def java_version() -> int:
    """The major version of the Java that Spark will use. Raises NoJava."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    wanted = " or ".join(map(str, JAVA_VERSIONS))
    if java is None or not Path(java).exists():
        where = f"JAVA_HOME={home} has no bin/java" if home else "there is no java on the PATH and no JAVA_HOME"
        raise NoJava(f"Spark needs Java {wanted}: {where}; install it (Debian: openjdk-17-jre-headless)")
    try:
        shown = subprocess.run([java, "-version"], capture_output=True, check=False, timeout=60).stderr  # noqa: S603
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NoJava(f"Spark needs Java {wanted}: {java} does not run ({error})") from error
    told = shown.decode(errors="replace")
    found = re.search(r'version "(\d+)', told)
    if found is None:
        raise NoJava(f"Spark needs Java {wanted}: {java} -version says {told.strip()[:200]!r}")
    major = int(found[1])
    if major not in JAVA_VERSIONS:
        raise NoJava(f"Spark needs Java {wanted}: {java} is version {major}; set JAVA_HOME to another one")
    return major


class EngineChoice(msgspec.Struct, frozen=True, kw_only=True):
    """The engine, and the reason in words."""

    engine: EngineName
    reason: str


class NoSpark(Exception):
    """Spark was requested and cannot run; the message says what is missing and how to get it."""


def choose_builder(asked: EngineName, event_bytes: int) -> EngineChoice:
    """Choose the engine that folds this many bytes of events. Raises NoSpark."""
    size = f"{size_text(event_bytes)} of events"
    return _choose(asked, size, is_large=event_bytes > LOCAL_BYTES_MAX)


def choose_archiver(asked: EngineName, records: int, *, is_topic: bool) -> EngineChoice:
    """Choose the engine that archives this many records. Raises NoSpark."""
    if asked is EngineName.SPARK and not is_topic:
        raise NoSpark("--engine spark archives a Kafka topic; of this log say --engine local")
    if asked is EngineName.AUTO and not is_topic:
        return EngineChoice(engine=EngineName.LOCAL, reason="the log is a file")
    return _choose(asked, f"{records:,} records", is_large=records > LOCAL_RECORDS_MAX)


def _choose(asked: EngineName, size: str, *, is_large: bool) -> EngineChoice:
    if asked is EngineName.LOCAL:
        return EngineChoice(engine=asked, reason="asked for")
    if asked is EngineName.SPARK:
        check_spark()
        return EngineChoice(engine=asked, reason="asked for")
    if not is_large:
        return EngineChoice(engine=EngineName.LOCAL, reason=f"{size} are too few for Spark to be worth its start")
    try:
        check_spark()
    except NoSpark as missing:
        return EngineChoice(engine=EngineName.LOCAL, reason=f"{size} would be Spark's, but {missing}")
    return EngineChoice(engine=EngineName.SPARK, reason=f"{size} are worth Spark's start")


def check_spark() -> None:
    """Raise NoSpark unless Spark can run here."""
    if importlib.util.find_spec("pyspark") is None:
        raise NoSpark("pyspark is missing: pip install '.[fleet]' in Muster's checkout")
    try:
        java_version()
    except NoJava as error:
        raise NoSpark(str(error)) from error
