"""`muster fleet build` on a year's archive, and on one more day; on a part of its groups, in one process and on Spark
with one core and with two; and on an archive in which one group, folded by one core, has all events.

For comparison, Spark just sorts the same records by key and offset, and a worker counts them.
"""

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, suppress
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import msgspec
import pyarrow as pa
from rich.console import Console

from benchmarks.measuring.archives import DaysLog, OneGroupLog, archive_log
from benchmarks.measuring.history import one_group
from benchmarks.results import Figure, Goal, Results
from muster.replay.archive.manifest import opened
from muster.replay.fleet.session import spark_session
from tests.brokers.jars import KAFKA_VERSION

DAYS: Final = 365
PART: Final = 4
"""The part of the events that is also folded by one core, which would take four minutes for all of them."""
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
"""With this variable set, each worker would compile everything that it imports."""


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """A command that was run on this many events: elapsed seconds in total, and of its fold.

    `cpu_s`: CPU time of all its processes; `worker_mb`: the peak memory of a Spark worker. Just sorting and counting is
    not a command, and only has its elapsed time.
    """

    events: int
    folding_s: float
    took_s: float = 0
    cpu_s: float = 0
    worker_mb: float = 0


def measure(events: int, console: Console, archives: Path | None = None) -> Results:
    """Measure all figures in one run. `archives`: a folder in which the archives are kept for the next one."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="muster-bench-")))
        with console.status(f"archives of {events:,} events"):
            made = _archives(events, archives or folder)
        with console.status("builds of a year"):
            year = {"bare": _bare(made.year), "fleet": _build(made.year, folder / "year", "spark")}
            day = _build_a_day_more(made.year, folder / "year", folder, events)
        with console.status("builds of a part of it"):
            part = {
                "local": _build(made.part, folder / "local", "local"),
                "one": _build(made.part, folder / "one", "spark", "local[1]"),
                "fleet": _build(made.part, folder / "two", "spark"),
            }
            small = _build(made.small, folder / "small", "auto")
        with console.status("one group"):
            hot = {"fleet": _build(made.hot, folder / "hot", "spark")}
    figures = [
        *_speeds(f"{_events(made.year):,} events", year, Goal(at_least=EVENTS_A_SECOND)),
        *_speeds(f"{_events(made.part):,} events, each in turn", part),
        Figure(
            name="... two cores beside one, the fold",
            unit="x",
            values={"fleet": part["one"].folding_s / part["fleet"].folding_s},
        ),
        *_speeds(f"one group with all of {_events(made.hot):,} events", hot),
        Figure(name=f"one day more of {DAYS}, the whole command", unit="s", values={"local": day.took_s}),
        Figure(name="... on a core", unit="s", values={"local": day.cpu_s}),
        Figure(
            name=f"{SMALL_MB} MB of events, the whole command, engine auto",
            unit="s",
            values={"fleet": small.took_s},
            goal=Goal(at_most=5),
        ),
        Figure(name="... on a core", unit="s", values={"fleet": small.cpu_s}),
    ]
    return Results(title="Fleet", columns=COLUMNS, figures=figures, kafka=KAFKA_VERSION)


def _speeds(what: str, runs: Mapping[str, Run], goal: Goal | None = None) -> Iterator[Figure]:
    """The figures of runs of the same archive: the fold's, the whole command's, and the largest worker."""
    commands = {name: run for name, run in runs.items() if run.took_s}
    yield Figure(
        name=f"{what}, sorted and folded",
        unit="1/s",
        values={name: run.events / run.folding_s for name, run in runs.items()},
        goal=goal,
    )
    yield Figure(
        name="... the whole command",
        unit="1/s",
        values={name: run.events / run.took_s for name, run in commands.items()},
        goal=goal,
    )
    yield Figure(
        name="... for each second that all its processes were on a core",
        unit="1/s",
        values={name: run.events / run.cpu_s for name, run in commands.items()},
    )
    yield Figure(
        name="... the largest worker",
        unit="MB",
        values={name: run.worker_mb for name, run in commands.items() if run.worker_mb},
        goal=Goal(at_most=WORKER_MB),
    )


# ---- archives ----------------------------------------------------------------------------------


class _Archives(msgspec.Struct, frozen=True, kw_only=True):
    year: Path
    part: Path
    small: Path
    hot: Path


def _archives(events: int, folder: Path) -> _Archives:
    """The archives: existing ones if there are any, else created by one process per core."""
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as pool:
        hot = pool.submit(_of_one_group, events, folder)
        year, part = (pool.submit(_of_days, _groups(of, DAYS), DAYS, folder) for of in (events, events // PART))
        of_small = max(1, SMALL_MB * 1_000_000 // DaysLog(1, SMALL_DAYS).value_bytes)
        small = pool.submit(_of_days, of_small, SMALL_DAYS, folder / "small")
        return _Archives(year=year.result(), part=part.result(), small=small.result(), hot=hot.result())


def _of_days(groups: int, days: int, folder: Path) -> Path:
    return _archived(DaysLog(groups, days), folder)


def _of_one_group(events: int, folder: Path) -> Path:
    return _archived(OneGroupLog(events), folder)


def _archived(log: DaysLog | OneGroupLog, folder: Path) -> Path:
    """An archive of the log: the existing one if there is one."""
    root = folder / log.identity
    archive_log(log, root)
    return root


def _events(root: Path) -> int:
    return sum(opened(root).next_offsets.values())


def _groups(events: int, days: int) -> int:
    return max(1, events // (days * len(one_group()) + 1))


# ---- builds --------------------------------------------------------------------------------------


def _build(root: Path, to: Path, engine: str, master: str = "local[2]") -> Run:
    """Build as from a shell, in a separate session, by which Spark's workers are found."""
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
    return Run(events=_events(root), took_s=took_s, folding_s=folding_s, cpu_s=used.cpu_s, worker_mb=used.worker_mb)


class _Used:
    """The resources that the processes of a session have used, sampled by `look`.

    `worker_mb`: the peak memory of a Spark worker.
    """

    def __init__(self, session: int) -> None:
        self._session = session
        self._ticks: dict[str, int] = {}
        self.worker_mb = 0.0

    @property
    def cpu_s(self) -> float:
        """The CPU seconds of all of them."""
        return sum(self._ticks.values()) / os.sysconf("SC_CLK_TCK")

    def look(self) -> None:
        """Sample each process of the session."""
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


def _build_a_day_more(year: Path, tables: Path, folder: Path, events: int) -> Run:
    """Update the year's tables with one more day."""
    root = shutil.copytree(year, folder / "a-day-more")
    archive_log(DaysLog(_groups(events, DAYS), DAYS + 1), root)
    return _build(root, tables, "local")


# ---- the bare work -------------------------------------------------------------------------------


def _bare(root: Path) -> Run:
    """Sort the archive's records by key and offset, and count them in a worker."""
    session = spark_session("local[2]")
    segments = [str(path) for path in root.glob("day=*/*/*.parquet")]
    started = time.perf_counter()
    records = session.read.parquet(*segments).select("key", "offset", "timestamp_ms", "value")
    ordered = records.repartition("key").sortWithinPartitions("key", "offset")
    counted = sum(row.records for row in ordered.mapInArrow(_count, "records long").collect())
    taken = time.perf_counter() - started
    session.stop()
    assert counted == _events(root)
    return Run(events=counted, folding_s=taken)


def _count(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    records = sum(1 for batch in batches for row in zip(*(each.to_pylist() for each in batch.columns), strict=True))
    yield pa.RecordBatch.from_arrays([pa.array([records], pa.int64())], names=["records"])
