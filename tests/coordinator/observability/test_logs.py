"""Log lines that clients cause: few of each kind, and dropped ones are counted."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import structlog

from muster.coordinator.observability.logs import OF_CLIENTS, Few

ROOT = Path(__file__).parents[3]
COORDINATOR = ROOT / "src" / "muster" / "coordinator"  # an sdist does not have the top-level folders
FLOOD = 339


class Log:
    """The log lines that are kept of those written at certain times."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self._few = Few(each_second=10, now_s=lambda: self.now_s)

    def written(self, lines: int, **line: object) -> list[structlog.typing.EventDict]:
        left = []
        for _ in range(lines):
            try:
                left.append(self._few(None, "warning", dict(line)))
            except structlog.DropEvent:
                continue
        return left


def test_a_flood_of_one_kind_is_few_lines_and_the_next_has_the_others() -> None:
    log = Log()
    closed = {"event": "a request failed", "fault": "failed-request"}
    assert log.written(FLOOD, **closed) == [closed] * 10
    log.now_s += 1
    assert log.written(2, **closed) == [closed | {"others_since": FLOOD - 10}, closed]


def test_another_kind_is_logged_meanwhile() -> None:
    """Another error is another kind; lines that clients cannot cause are never dropped."""
    log = Log()
    log.written(FLOOD, event="a request failed", fault="failed-request")
    assert len(log.written(1, event="a request failed", fault="unknown-api")) == 1
    assert len(log.written(1, event="connection lost")) == 1
    assert len(log.written(FLOOD, event="group quarantined")) == FLOOD


def test_a_repeated_client_error_is_one_line_a_minute() -> None:
    """For each address and kind of mistake; the next line has the count of dropped ones."""
    log = Log()
    closed = {"event": "connection closed", "fault": "other-protocol", "peer": "/10.0.0.7"}
    assert log.written(FLOOD, **closed) == [closed]
    assert len(log.written(2, **closed | {"peer": "/10.0.0.8"})) == 1
    assert len(log.written(2, **closed | {"fault": "unknown-api"})) == 1
    assert len(log.written(2, event="TLS with a client failed", reason="unknown ca")) == 1
    log.now_s += 59
    assert log.written(1, **closed) == []
    log.now_s += 1
    assert log.written(2, **closed) == [closed | {"others_since": FLOOD}]


def test_mistakes_of_many_addresses_are_few_lines_too() -> None:
    log = Log()
    closed = {"event": "connection closed", "fault": "other-protocol"}
    assert sum(len(log.written(1, peer=f"/10.0.0.{host}", **closed)) for host in range(FLOOD)) == 10
    log.now_s += 60
    (line,) = log.written(1, peer="/10.0.0.200", **closed)
    assert line["others_since"] == FLOOD - 10


@pytest.mark.parametrize("event", sorted(OF_CLIENTS))
def test_each_of_these_lines_is_written_somewhere(event: str) -> None:
    sources = [path for path in COORDINATOR.rglob("*.py") if path.name != "logs.py"]
    assert any(f'"{event}"' in path.read_text(encoding="utf-8") for path in sources)


LIBRARIES = """
import logging
from muster.coordinator.observability.logs import configure_logs

configure_logs("INFO", {form!r})
logging.getLogger("aiokafka.conn").info("nobody wants to know")
for number in range({flood}):
    logging.getLogger("aiokafka.conn").warning("%s in the clear", f"user {{{{and}}}} 100% {{number}}")
for level in (1, 35, 70):
    logger = logging.getLogger(f"level {{level}}")
    logger.setLevel(1)
    logger.log(level, "said")
logging.getLogger("badly").warning("%d", "said badly")
try:
    raise KeyError("of a library")
except KeyError:
    logging.getLogger("asyncio").exception("Task exception was never retrieved")
"""


def library_lines(form: str) -> list[str]:
    command = [sys.executable, "-c", LIBRARIES.format(form=form, flood=FLOOD)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    return done.stderr.splitlines()


def test_log_lines_of_libraries_have_the_form_of_the_log() -> None:
    """Few lines of each, and a traceback within its line."""
    lines = [json.loads(line) for line in library_lines("json") if line.startswith("{")]
    warnings = [line for line in lines if line["library"] == "aiokafka.conn"]
    assert 10 <= len(warnings) < FLOOD
    assert (warnings[0]["event"], warnings[0]["level"]) == ("user {and} 100% 0 in the clear", "warning")
    (failed,) = [line for line in lines if line["library"] == "asyncio"]
    assert (failed["event"], failed["level"]) == ("Task exception was never retrieved", "error")
    assert "KeyError: 'of a library'" in failed["exception"]


def test_library_log_lines_of_any_level_or_form_are_accepted() -> None:
    """Unknown levels become the next lower one; lines that cannot be formatted are reported as `logging` does."""
    lines = library_lines("json")
    reported = [json.loads(line) for line in lines if '"said"' in line and line.startswith("{")]
    assert [(line["library"], line["level"]) for line in reported] == [
        ("level 35", "warning"),
        ("level 70", "critical"),
    ]
    assert "Message: '%d'" in lines
    assert "was never retrieved" in lines[-1]


def test_on_a_terminal_too() -> None:
    lines = library_lines("console")
    assert "[warning  ] user {and} 100% 0 in the clear" in lines[0]
    assert "library=aiokafka.conn" in lines[0]
    assert "KeyError: 'of a library'" in lines


UNCAUGHT = """
import sys, threading, warnings
from muster.coordinator.observability.logs import are_json, configure_logs, log_exit

configure_logs("INFO", {form!r})

class Odd:
    def __del__(self):
        raise KeyError("of an object that goes")

def fail():
    raise KeyError("of a thread")

thread = threading.Thread(target=fail, name="worker")
thread.start()
thread.join()
Odd()
warnings.warn("something is old")
if are_json():
    log_exit("no log", 2)
raise KeyError("of all")
"""


def uncaught_lines(form: str) -> list[str]:
    command = [sys.executable, "-c", UNCAUGHT.format(form=form)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 1
    return done.stderr.splitlines()


def test_pythons_own_messages_are_json_too() -> None:
    """Uncaught errors of any thread, errors in destructors, warnings, and the reason why the process exits."""
    lines = [json.loads(line) for line in uncaught_lines("json")]
    reported = [line.get("exception", "").splitlines()[-1:] for line in lines if "exception" in line]
    assert reported == [["KeyError: 'of a thread'"], ["KeyError: 'of an object that goes'"], ["KeyError: 'of all'"]]
    assert [line["thread"] for line in lines if "thread" in line] == ["worker"]
    (warned,) = [line for line in lines if line.get("library") == "py.warnings"]
    assert "something is old" in warned["event"]
    (last,) = [line for line in lines if line["event"] == "muster ends"]
    assert (last["reason"], last["exit_code"], last["level"]) == ("no log", 2, "error")


def test_on_a_terminal_python_prints_as_usual() -> None:
    assert "Traceback (most recent call last):" in uncaught_lines("console")
