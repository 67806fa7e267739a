"""Creates the Spark session, and shortens Spark's errors to one line. No other module creates a session.

The user's settings take precedence: those of `spark-submit` (which then started this process, and sets the master), of
`spark-defaults.conf`, and of `PYSPARK_SUBMIT_ARGS`. This module only sets what the user has not.

Spark's own log is only shown with `--verbose`: otherwise the JVM that is started here logs nothing, and that of
`spark-submit` is silenced once the session exists.
"""

import logging
import os
import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from socketserver import BaseServer
from tempfile import TemporaryFile
from typing import IO, TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WISHES: Final = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false"}
"""These settings apply unless the user has set them."""

SILENCE: Final = {"spark.log.level": "FATAL"}
"""These too apply without --verbose: every error is also raised as an exception, so the log adds nothing."""

LOOPBACK: Final = {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}
"""A session that runs only on this machine uses only the loopback interface."""

APP: Final = "muster fleet"
_SCRIPT: Final = "__main__.py"
"""The name that spark-submit gives an application without a name: its script's."""

_STOPPED: Final = "on a stopped SparkContext"
"""The error text for a context that was stopped while the session was being created, for any reason."""

REASON_CHARS: Final = 600
_IN_MAIN: Final = re.compile(r'^Exception in thread "main" [\w.$]+: ')
_NO_MODULE: Final = re.compile(r"ModuleNotFoundError: No module named '(muster|pyarrow|msgspec|fastavro)")
_NO_WORKER: Final = re.compile(r"Python worker exited unexpectedly|reading the port number from pyspark\.daemon")
_IN_JAVA: Final = "py4j.protocol.Py4JJavaError:"
DEAD_WORKER: Final = (
    "a Python worker ended without a word, as one that is killed does; whether its machine had no memory left stands in"
    " that machine's own log"
)


class SparkFailed(Exception):
    """Spark could not do its work; the message is one line with the cause, `__cause__` is Spark's own error."""


def is_submitted() -> bool:
    """Return whether `spark-submit` started this process."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def spark_session(master: str, packages: Sequence[str] = (), *, verbose: bool = False) -> "SparkSession":
    """Create the session, or return the existing one. Raises SparkFailed.

    `packages`: Maven coordinates of the workers' other dependencies; under `spark-submit`, its `--packages` names them.
    """
    from pyspark import SparkConf, SparkContext  # noqa: PLC0415 -- takes a second, and most builds do not need it
    from pyspark.sql import SparkSession  # noqa: PLC0415

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if not verbose:
        _leave_out_tracebacks()
    if SparkContext._gateway is None:  # noqa: SLF001 -- there is no public way to ask
        _start_jvm(master, packages, verbose=verbose)
    given: SparkConf | None = None
    try:
        with in_a_line("Spark does not start"):
            given = SparkConf()  # the JVM's settings
            builder = SparkSession.builder
            for name, value in (WISHES if verbose else WISHES | SILENCE).items():
                if not given.contains(name):
                    builder = builder.config(name, value)
            if given.get("spark.app.name", _SCRIPT) in {_SCRIPT, "pyspark-shell"}:
                builder = builder.appName(APP)
            session: SparkSession = builder.getOrCreate()
    except SparkFailed as error:
        if given is not None and _STOPPED in str(error):
            master = given.get("spark.master", master)
            raise SparkFailed(f"Spark does not start: it gave up; is there a master at {master}?") from error.__cause__
        raise
    return session


def _leave_out_tracebacks() -> None:
    """Suppress tracebacks for commands that a dying JVM interrupts; the error itself is raised anyway."""
    from pyspark import accumulators  # noqa: PLC0415 -- as above

    for each in vars(accumulators).values():  # one server until Spark 4.0, by TCP and by a Unix socket since 4.1
        if isinstance(each, type) and issubclass(each, BaseServer):
            setattr(each, "handle_error", lambda *_: None)  # noqa: B010 -- a method of theirs
    logging.getLogger().addFilter(_is_not_of_py4j)


def _is_not_of_py4j(record: logging.LogRecord) -> bool:
    """Filter py4j's log record, with a traceback, for a command that was running when the JVM died."""
    return "py4j" not in record.pathname


def told_session(
    say: Callable[[str], None], master: str, packages: Sequence[str] = (), *, verbose: bool = False
) -> "SparkSession":
    """Call `spark_session`, and report where it runs and how long the start took."""
    begun_s = time.monotonic()
    session = spark_session(master, packages, verbose=verbose)
    start_s = time.monotonic() - begun_s
    with in_a_line("Spark does not start"):
        context = session.sparkContext
        tasks = context.defaultParallelism
        say(f"on Spark {session.version} at {context.master}, {tasks} tasks at once; its start took {start_s:.1f} s")
    return session


def _start_jvm(master: str, packages: Sequence[str], *, verbose: bool) -> None:
    """Start the JVM, unless spark-submit has, without its output."""
    from pyspark import SparkConf, SparkContext  # noqa: PLC0415
    from pyspark.java_gateway import launch_gateway  # noqa: PLC0415

    told = SparkConf(loadDefaults=False).setMaster(master)
    if packages:
        told.set("spark.jars.packages", ",".join(packages))
    if not is_submitted() and master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        told.setAll(list(LOOPBACK.items()))
    with TemporaryFile() as log:
        output = {} if verbose else {"stdout": log, "stderr": log}
        with in_a_line(f"Spark does not start (--master {master})", log):
            launch: Any = launch_gateway
            SparkContext._ensure_initialized(gateway=launch(told, output))  # noqa: SLF001


@contextmanager
def in_a_line(doing: str, log: IO[bytes] | None = None) -> Iterator[None]:
    """Raise Spark's errors as SparkFailed. `log`: output of a JVM that may have died before it raised an exception."""
    from py4j.protocol import Py4JError  # noqa: PLC0415 -- an extra
    from pyspark.errors import PySparkException  # noqa: PLC0415

    try:
        yield
    except (PySparkException, Py4JError) as error:
        raise SparkFailed(f"{doing}: {(log and _last_words(log)) or reason_of(error)}") from error
    except ConnectionError as error:
        raise SparkFailed(f"{doing}: its JVM has ended ({error})") from error


def reason_of(error: Exception) -> str:
    """The cause in one line: a dead worker, a worker's own exception, or the first line of Spark's message."""
    text = _text_of(error)
    first = next((line.strip() for line in text.splitlines() if line.strip()), type(error).__name__)
    reason = DEAD_WORKER if _NO_WORKER.search(text) else _raised_by_worker(text) or first
    if _NO_MODULE.search(reason):
        reason += ": the workers' Python lacks it; give them an environment by --archives (docs/fleet-spark.md)"
    return reason[:REASON_CHARS]


def _text_of(error: Exception) -> str:
    java: Any = getattr(error, "java_exception", None)
    if java is not None:
        try:
            return str(java.getMessage() or java.toString())
        except Exception:  # noqa: BLE001 -- the JVM is gone, and can report nothing more
            return str(error)
    return str(error)


def _raised_by_worker(text: str) -> str | None:
    """The last line of the last traceback in the text: `OSError: ...`."""
    _, begun, rest = text.rpartition("Traceback (most recent call last):\n")
    if not begun:
        return None
    lines = [line for line in rest.splitlines() if line and not line[0].isspace()]
    if lines and lines[0].startswith(_IN_JAVA) and len(lines) > 1:  # Java's message is in the next line
        return lines[1].removeprefix(": ")
    return lines[0] if lines else None


def _last_words(log: IO[bytes]) -> str | None:
    """The line in which a JVM that has ended gives the reason."""
    log.seek(0)
    lines = log.read().decode(errors="replace").splitlines()
    causes = [line.strip() for line in lines if "Exception" in line or "unresolved dependency" in line]
    return _IN_MAIN.sub("", causes[0])[:REASON_CHARS] if causes else None
