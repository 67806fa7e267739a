"""`muster fleet build` on a year's archive: in one process, on Spark with one core and two, and one new day of it.

Then an archive of which one group has all events, which one core folds. Beside them the bare work: Spark sorts the same
records by key and offset, and a worker counts them.
"""

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import msgspec
import pyarrow as pa
from rich.console import Console

from benchmarks.measuring.archives import DaysLog, OneGroupLog, archive_log
from benchmarks.measuring.history import one_group
from benchmarks.results import Figure, Goal, Results
from muster.replay.fleet.session import spark_session
from tests.brokers import KAFKA_VERSION

DAYS: Final = 365
SMALL_MB: Final = 26
SMALL_DAYS: Final = 30
WORKER_MB: Final = 300
EVENTS_A_SECOND: Final = 60_000
COLUMNS: Final = {
    "bare": "bare sort and count, local[2]",
    "local": "one process",
    "one": "local[1]",
    "fleet": "local[2]",
}

_LOOK_EVERY_S: Final = 0.1
_TOOK: Final = re.compile(r"folding (\d+\.\d) s")
_MAIN: Final = "from muster.cli import main; main()"
_ENVIRONMENT: Final = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
"""With it, each worker would compile all that it imports."""


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """A command that was run: seconds, and those of its fold, by the clock.

    `cpu_s`: on a core, of all its processes; `worker_mb`: the most memory of a worker of Spark.
    """

    took_s: float
    folding_s: float
    cpu_s: float
    worker_mb: float


def measure(events: int, console: Console, archives: Path | None = None) -> Results:
    """All figures, in one run. `archives`: a folder in which the archives are kept for the next one."""
    figures: list[Figure] = []
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="muster-bench-")))
        kept = archives or folder
        with console.status(f"archives of {events:,} events"):
            of_year = DaysLog(_groups(events, DAYS), DAYS)
            total = of_year.events
            year = _archived(of_year, kept)
            of_days = max(1, total * SMALL_MB * 1_000_000 // of_year.value_bytes)
            small = _archived(DaysLog(_groups(of_days, SMALL_DAYS), SMALL_DAYS), kept)
            of_one = OneGroupLog(events)
            hot = _archived(of_one, kept)
        with console.status("builds"):
            local = _build(year, folder / "local", "local")
            day = _build_a_day_more(year, folder, events)
            of_small = _build(small, folder / "of-small", "auto")
            one = _build(year, folder / "one", "spark", "local[1]")
            two = _build(year, folder / "two", "spark", "local[2]")
            bare_s = _bare(year)
        with console.status("one group"):
            of_hot = _build(hot, folder / "of-hot", "spark", "local[2]")
    runs = {"local": local, "one": one, "fleet": two}
    folding = {name: total / run.folding_s for name, run in runs.items()}
    figures += [
        Figure(
            name=f"{total:,} events sorted and folded",
            unit="1/s",
            values={"bare": total / bare_s, **folding},
            goal=Goal(at_least=EVENTS_A_SECOND),
        ),
        Figure(
            name="... the whole command",
            unit="1/s",
            values={name: total / run.took_s for name, run in runs.items()},
            goal=Goal(at_least=EVENTS_A_SECOND),
        ),
        Figure(
            name="... for each second that all its processes were on a core",
            unit="1/s",
            values={name: total / run.cpu_s for name, run in runs.items()},
        ),
        Figure(name="... two cores beside one, the fold", unit="x", values={"fleet": one.folding_s / two.folding_s}),
        Figure(
            name="... the largest worker",
            unit="MB",
            values={"one": one.worker_mb, "fleet": two.worker_mb},
            goal=Goal(at_most=WORKER_MB),
        ),
        Figure(
            name=f"one group with all of {of_one.events:,} events, folded",
            unit="1/s",
            values={"fleet": of_one.events / of_hot.folding_s},
        ),
        Figure(
            name="... for each second that all its processes were on a core",
            unit="1/s",
            values={"fleet": of_one.events / of_hot.cpu_s},
        ),
        Figure(
            name="... the largest worker", unit="MB", values={"fleet": of_hot.worker_mb}, goal=Goal(at_most=WORKER_MB)
        ),
        Figure(name=f"one day more of {DAYS}, the whole command", unit="s", values={"local": day.took_s}),
        Figure(name="... on a core", unit="s", values={"local": day.cpu_s}),
        Figure(
            name=f"{SMALL_MB} MB of events, the whole command, engine auto",
            unit="s",
            values={"fleet": of_small.took_s},
            goal=Goal(at_most=5),
        ),
        Figure(name="... on a core", unit="s", values={"fleet": of_small.cpu_s}),
    ]
    return Results(title="Fleet", columns=COLUMNS, figures=figures, kafka=KAFKA_VERSION)


# ---- archives ----------------------------------------------------------------------------------


def _archived(log: DaysLog | OneGroupLog, folder: Path) -> Path:
    """An archive of the log, the one that is there, if it is."""
    root = folder / log.identity
    archive_log(log, root)
    return root


def _groups(events: int, days: int) -> int:
    return max(1, events // (days * len(one_group()) + 1))


# ---- builds --------------------------------------------------------------------------------------


def _build(root: Path, to: Path, engine: str, master: str = "local[2]") -> Run:
    """Build as from a shell, in a session of its own, so that Spark's workers are known by it."""
    line = ["fleet", "build", "--archive", str(root), "--to", str(to), "--engine", engine, "--master", master]
    started = time.perf_counter()
    child = subprocess.Popen(
        [sys.executable, "-c", _MAIN, *line],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env=_ENVIRONMENT,
    )
    used = _Used(child.pid)
    told = None
    while told is None:
        try:
            told, _ = child.communicate(timeout=_LOOK_EVERY_S)
        except subprocess.TimeoutExpired:
            used.look()
    assert child.returncode == 0, told
    took = _TOOK.search(told)
    assert took is not None, told
    folding_s = max(0.1, float(took.group(1)))
    took_s = time.perf_counter() - started
    return Run(took_s=took_s, folding_s=folding_s, cpu_s=used.cpu_s, worker_mb=used.worker_mb)


class _Used:
    """The resources that the processes of a session have used, as often as one looks.

    `worker_mb`: the most memory that a worker of Spark has had.
    """

    def __init__(self, session: int) -> None:
        self._session = session
        self._ticks: dict[str, int] = {}
        self.worker_mb = 0.0

    @property
    def cpu_s(self) -> float:
        """The seconds that all of them were on a core."""
        return sum(self._ticks.values()) / os.sysconf("SC_CLK_TCK")

    def look(self) -> None:
        """Look at each process of the session that there is."""
        for process in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):  # it has ended
                if os.getsid(int(process.name)) == self._session:
                    self._look_at(process)

    def _look_at(self, process: Path) -> None:
        user, system = (process / "stat").read_text().rpartition(")")[2].split()[11:13]
        self._ticks[process.name] = int(user) + int(system)
        if b"pyspark.daemon" in (process / "cmdline").read_bytes():
            peak = re.search(r"VmHWM:\s+(\d+)", (process / "status").read_text())
            self.worker_mb = max(self.worker_mb, int(peak.group(1)) / 1024 if peak else 0.0)


def _build_a_day_more(year: Path, folder: Path, events: int) -> Run:
    """Build the year's tables again, with one day more."""
    root = shutil.copytree(year, folder / "a-day-more")
    archive_log(DaysLog(_groups(events, DAYS), DAYS + 1), root)
    return _build(root, folder / "local", "local")


# ---- the bare work -------------------------------------------------------------------------------


def _bare(root: Path) -> float:
    """Seconds to sort the archive's records by key and offset, and to count them in a worker."""
    session = spark_session("local[2]")
    segments = [str(path) for path in root.glob("day=*/*/*.parquet")]
    started = time.perf_counter()
    records = session.read.parquet(*segments).select("key", "offset", "timestamp_ms", "value")
    ordered = records.repartition("key").sortWithinPartitions("key", "offset")
    counted = sum(row.records for row in ordered.mapInArrow(_count, "records long").collect())
    taken = time.perf_counter() - started
    session.stop()
    assert counted
    return taken


def _count(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    records = sum(1 for batch in batches for row in zip(*(each.to_pylist() for each in batch.columns), strict=True))
    yield pa.RecordBatch.from_arrays([pa.array([records], pa.int64())], names=["records"])
