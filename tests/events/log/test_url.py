"""Event logs by their URLs."""

import subprocess
import sys
from pathlib import Path

import pytest

from muster.events.log.kafka.log import KafkaEventLog
from muster.events.log.memory import MemoryEventLog
from muster.events.log.sqlite.log import SqliteEventLog
from muster.events.log.url import FORMS, InvalidLogUrl, open_log
from tests.events.log.transitions import read_all, records_of, transition


@pytest.mark.parametrize(
    ("url", "location"),
    [
        ("memory:", "memory"),
        ("sqlite:///muster.db", "muster.db"),
        ("sqlite:///logs/muster.db", "logs/muster.db"),
        ("sqlite:////var/lib/muster.db", "/var/lib/muster.db"),
        ("sqlite:////tmp/with%20space.db", "/tmp/with space.db"),
        ("kafka://host:9092/__muster_events", "__muster_events"),
        ("kafka://host:9092,host2:9093/other.topic-1", "other.topic-1"),
    ],
)
async def test_a_url_names_a_log(url: str, location: str) -> None:
    """Nothing is opened or created before it is used."""
    assert open_log(url).location == location


@pytest.mark.parametrize(
    ("url", "kind"),
    [
        ("memory:", MemoryEventLog),
        ("sqlite:///muster.db", SqliteEventLog),
        ("kafka://host:9092/events", KafkaEventLog),
    ],
)
async def test_each_documented_form_works(url: str, kind: type) -> None:
    """The forms in the message of an error, and their schemes."""
    assert isinstance(open_log(url), kind)
    assert all(open_log(form) for form in FORMS)
    assert {form.split(":")[0] for form in FORMS} == {"memory", "sqlite", "kafka"}


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("", "no scheme"),
        ("muster.db", "no scheme"),
        ("/var/lib/muster.db", "no scheme"),
        ("postgres://host/db", "unknown scheme 'postgres'"),
        ("memory:thing", "nothing may follow"),
        ("sqlite:muster.db", "names no file"),
        ("sqlite:", "names no file"),
        ("sqlite:///", "names no file"),
        ("sqlite:////", "names no file"),
        ("sqlite://muster.db", "three slashes"),
        ("sqlite://var/lib/muster.db", "three slashes"),
        ("sqlite:///muster.db?mode=ro", "may not contain '?'"),
        ("sqlite:///muster.db#1", "or '#'"),
        ("kafka:///topic", "'' is not HOST:PORT"),
        ("kafka://host/topic", "'host' is not HOST:PORT"),
        ("kafka://host:9092,/topic", "'' is not HOST:PORT"),
        ("kafka://host:99999/topic", "'host:99999' is not HOST:PORT"),
        ("kafka://host:0/topic", "'host:0' is not HOST:PORT"),
        ("kafka://user:word@host:9092/topic", "is not HOST:PORT"),
        ("kafka://host:9092", "names no topic"),
        ("kafka://host:9092/", "names no topic"),
        ("kafka://host:9092/a/b", "'a/b' is not a topic name"),
        ("kafka://[host:9092/topic", "Invalid IPv6 URL"),
    ],
)
def test_another_url_is_refused_with_the_forms_that_exist(url: str, reason: str) -> None:
    """One line, with the error."""
    with pytest.raises(InvalidLogUrl) as invalid:
        open_log(url)

    message = str(invalid.value)
    assert reason in message
    assert all(form in message for form in FORMS)
    assert "\n" not in message


async def test_a_file_is_opened_with_the_settings_given(tmp_path: Path) -> None:
    """Partitions and window are the log's when it is made."""
    url = f"sqlite:///{tmp_path}/muster.db"
    log = open_log(url, partitions=3, audit_window_ms=5_000)
    await log.open()
    assert isinstance(log, SqliteEventLog)
    assert (log.partitions, log.meta.audit_window_ms) == (3, 5_000)
    await (await log.claim(2)).append([transition("a")])

    reader = open_log(url, read_only=True)
    await reader.open()
    assert records_of(await read_all(reader, 2)) == list(transition("a"))

    await reader.close()
    await log.close()


async def test_a_relative_file_is_in_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a shell."""
    monkeypatch.chdir(tmp_path)
    log = open_log("sqlite:///muster.db")
    await log.open()
    await log.close()

    assert content_of(tmp_path) == {"muster.db", "muster.db.lock"}


def content_of(folder: Path) -> set[str]:
    return {file.name for file in folder.iterdir()}


async def test_a_log_in_memory_has_the_requested_partitions() -> None:
    """And a default number if none is requested."""
    assert open_log("memory:", partitions=3).partitions == 3
    assert open_log("memory:").partitions >= 2


def test_reading_a_file_needs_no_kafka_client() -> None:
    """`muster replay` on a file starts without importing one."""
    program = (
        "import sys, muster.events.log.url as url; url.open_log('sqlite:///a.db'); sys.exit('aiokafka' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60, cwd=Path(__file__).parents[3])


@pytest.mark.parametrize(("given", "kept_ms"), [(None, 7 * 24 * 3_600_000), (0, 0), (3_600_000, 3_600_000)])
async def test_the_history_is_kept_in_a_topic_for_the_time_that_is_given(given: int | None, kept_ms: int) -> None:
    """Without one for the seven days that are documented."""
    log = open_log("kafka://host:9092/events", audit_window_ms=given)
    assert isinstance(log, KafkaEventLog)
    assert log._plan.audit_window_ms == kept_ms
