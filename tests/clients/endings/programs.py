"""Each family's program and its version."""

import shutil
import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Final

from tests.brokers.broker import SHORT_LIVED_JVM_OPTIONS
from tests.brokers.jars import KAFKA_VERSION, client_jars, resolved_libs
from tests.clients.endings.given import Family
from tests.clients.foreign.programs import FRANZ_GO, HERE, Program, ToolMissing

OLD_KAFKA_VERSION: Final = "2.8.2"
_PYTHON: Final = (sys.executable, "-m", "tests.clients.endings.member")
_DISTRIBUTIONS: Final = {
    Family.LIBRDKAFKA: "confluent-kafka",
    Family.AIOKAFKA: "aiokafka",
    Family.KAFKA_PYTHON: "kafka-python",
}
_GO: Final = {
    Family.FRANZ_GO: ("franz_go_member", "github.com/twmb/franz-go"),
    Family.SARAMA: ("sarama_member", "github.com/IBM/sarama"),
}
_JAVA: Final[dict[Family, Callable[[], Path]]] = {
    Family.JAVA: lambda: resolved_libs().directory,
    Family.JAVA_OLD: lambda: client_jars(OLD_KAFKA_VERSION),
}


def command_of(family: Family) -> list[str]:
    """The command that runs it, without its settings; built on first use. Raises `ToolMissing`, `BuildFailed`."""
    if family in _DISTRIBUTIONS:
        return [*_PYTHON, family.value]
    if family in _GO:
        return _go_program(family).command()
    return _java_program(family).command()


def version_of(family: Family) -> str:
    """The library and its version, for display."""
    if family is Family.LIBRDKAFKA:
        import confluent_kafka

        return f"confluent-kafka {version('confluent-kafka')} (librdkafka {confluent_kafka.libversion()[0]})"
    if family in _DISTRIBUTIONS:
        return f"{_DISTRIBUTIONS[family]} {version(_DISTRIBUTIONS[family])}"
    if family in _GO:
        folder, module = _GO[family]
        lines = (HERE / folder / "go.mod").read_text(encoding="utf-8").splitlines()
        required = next(line.removeprefix("require ").split() for line in lines if f"{module} v" in line)
        return f"{family} {required[1].removeprefix('v')}"
    return f"kafka-clients {KAFKA_VERSION if family is Family.JAVA else OLD_KAFKA_VERSION}"


def _go_program(family: Family) -> Program:
    return Program(
        library=family.value,
        folder=_GO[family][0],
        tools=("go",),
        build=FRANZ_GO.build,
        environment=FRANZ_GO.environment,
        run=("{directory}/client",),
    )


def _java_program(family: Family) -> Program:
    """Compile with an installed JDK: the runtime from pip has no compiler."""
    if shutil.which("javac") is None:
        raise ToolMissing(f"javac NOT INSTALLED: NOT TRIED WITH {family}")
    jars = f"{_JAVA[family]()}/*"
    return Program(
        library=family.value,
        folder="java_member",
        tools=("javac", "java"),
        build=("javac", "-nowarn", "-cp", jars, "Member.java"),
        environment={},
        run=("java", *SHORT_LIVED_JVM_OPTIONS, "-cp", f"{{directory}}:{jars}", "Member"),
    )
