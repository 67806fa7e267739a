"""The README and the pages that it links to: commands run as written, in an empty directory and in their order.

Exceptions: `make demo` has its own tests, `make test` runs this one, and `pip install` installs the published package.
The sidecar needs a cluster: `tests/clients/through_sidecar` has one. A command that is neither run here nor listed here
as an exception fails the test.
"""

import re
import shlex
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, KafkaException

from muster.coordinator.settings.loading import load_settings
from tests.clients.consumers import Confluent, RunningConsumer
from tests.forked import run_muster
from tests.muster_process import MusterProcess
from tests.waiting import until_so
from tests.written_pages import PARTS, written

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
FIRST_STEPS = (ROOT / "docs" / "first-steps.md").read_text(encoding="utf-8")
CONFIGURATION = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")
SIDECAR = "muster serve --listen 127.0.0.1:19092 --upstream kafka-1:9092,kafka-2:9092"
SHARING = [
    f"muster serve --node-id {node} --share-partitions --listen 10.0.0.{node}:9092 --topic orders:12"
    " --log kafka://kafka-1:9092/groups"
    for node in (1, 2)
]
ELSEWHERE = {"make demo", "pip install .", "docker compose up --build", SIDECAR, *SHARING}


def commands_of(page: str) -> list[str]:
    """The commands of a page that are run here."""
    return [command for command in re.findall(r"^\$ (.+)$", page, re.MULTILINE) if command not in ELSEWHERE]


README_LINES_MAX = 110
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
ENDS_WITHIN_S = 240
COORDINATOR_NOT_FOUND = (
    KafkaError._TRANSPORT,
    KafkaError._TIMED_OUT,
    KafkaError._WAIT_COORD,
    KafkaError.REQUEST_TIMED_OUT,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.NOT_COORDINATOR,
)


def arguments_of(command: str) -> list[str]:
    """The arguments of a `muster` command."""
    name, *arguments = shlex.split(command)
    assert name == "muster", command
    return arguments


def is_committed(consumer: RunningConsumer, offset: int) -> bool:
    """Try to commit; return False while the client has not found the coordinator again."""
    try:
        consumer.commit(0, offset)
    except KafkaException as error:
        if error.args[0].code() not in COORDINATOR_NOT_FOUND:
            raise
        return False
    return True


@pytest.mark.spark
@pytest.mark.clients
@pytest.mark.timeout(900)  # a minute, of which a busy machine gives little
def test_the_commands_of_the_first_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A consumer joins and survives `kill -9` of the coordinator, and each further command shows its group."""
    monkeypatch.chdir(tmp_path)
    serve, *asking = commands_of(FIRST_STEPS)
    assert set(commands_of(README)) <= {serve, *asking}
    command, *arguments = arguments_of(serve)
    assert command == "serve"
    listen = arguments.index("--listen")
    del arguments[listen : listen + 2]  # the one thing that cannot stay: the port may be taken
    muster = MusterProcess(*arguments, output=tmp_path / "output")
    muster.start()
    try:
        consumer = Confluent(muster.bootstrap, "orders", "orders").start()
        until_so(lambda: len(consumer.assigned) == 12, lambda: consumer.error)
        muster.kill()
        muster.start()
        until_so(lambda: is_committed(consumer, 42), lambda: consumer.error)
        monkeypatch.setenv("MUSTER_BOOTSTRAP", muster.bootstrap)
        for line in asking:
            done = run_muster(*arguments_of(line), within_s=ENDS_WITHIN_S)
            assert (done.returncode, "Traceback" in done.stderr) == (0, False), (line, done.stderr)
            printed = any(word in done.stdout for word in ("orders", "rdkafka", "web-1", "is consistent"))
            assert printed or (tmp_path / "fleet" / "rebalances").is_dir(), (line, done.stdout)
        assert consumer.assignments == 1, "the restart was a rebalance"
        consumer.close()
    finally:
        muster.end()


def test_the_readme_is_short() -> None:
    """It leads to the pages, which have the rest."""
    assert len(README.splitlines()) <= README_LINES_MAX


def test_the_sidecar_of_the_readme_could_start() -> None:
    """Its options are taken, and its events are kept in its cluster."""
    _, *given = arguments_of(SIDECAR)
    flags = {name.removeprefix("--"): value for name, value in zip(given[::2], given[1::2], strict=True)}
    assert load_settings(flags, [], None).log == "kafka://kafka-1:9092,kafka-2:9092/__muster_events"
    assert f"$ {SIDECAR}\n" in README


@pytest.mark.parametrize("command", SHARING)
def test_the_processes_of_the_readme_could_start(command: str) -> None:
    """`muster config check` takes their options; tests/coordinator/peers shares partitions."""
    assert f"$ {command}\n" in README
    done = run_muster("config", "check", *arguments_of(command)[1:])
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(("path", "name", "make"), PARTS, ids=lambda part: part if isinstance(part, str) else "")
def test_written_parts_are_what_the_program_writes(path: Path, name: str, make: Callable[[], str]) -> None:
    """`python -m tests.written_pages` writes them again."""
    page = path.read_text(encoding="utf-8")
    assert f"<!-- {name} -->\n" in page
    assert written(page, name, make()) == page


def test_the_settings_file_of_the_page(tmp_path: Path) -> None:
    """It is accepted as written."""
    (text,) = re.findall(r"```toml\n(.+?)```", CONFIGURATION, re.DOTALL)
    file = tmp_path / "muster.toml"
    file.write_text(text, encoding="utf-8")
    settings = load_settings({}, [], file)
    reported = tomllib.loads(text)
    assert (settings.listen, settings.topic) == (reported["listen"], reported["topic"])
    assert settings.group_max_size == reported["config"]["group.max.size"]


@pytest.mark.parametrize("page", [README, CONTRIBUTING], ids=["README", "CONTRIBUTING"])
def test_targets_and_paths_named_by_a_page_exist(page: str) -> None:
    """`make` targets, files and folders; test_pages follows the links."""
    for target in re.findall(r"`make ([\w-]+)", page):
        assert re.search(rf"^{target}:", MAKEFILE, re.MULTILINE), target
    for path in re.findall(r"`([a-z_]+/[\w/.-]*)`", page):
        is_there = any((folder / path).exists() for folder in (ROOT, ROOT / "src" / "muster"))
        assert is_there or path == "schemas/vN/", path


def test_each_target_has_a_row_for_contributors() -> None:
    listed = set(re.findall(r"`make ([\w-]+)", CONTRIBUTING))
    assert listed == set(re.findall(r"^([a-z-]+):", MAKEFILE, re.MULTILINE))


def test_options_named_by_the_pages_exist() -> None:
    """In the help of the commands that they are about."""
    text = ""
    for command in ("serve", "groups repair", "log repair", "replay groups", "replay whatif", "replay export"):
        wide = {"COLUMNS": "160"}  # a narrow terminal cuts the names of options off
        text += run_muster(*command.split(), "--help", variables=wide).stdout
    for option in re.findall(r"`(--[a-z-]+)", README + CONFIGURATION):
        assert option in text, option
