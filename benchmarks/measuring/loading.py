"""Reading a log: how fast it is projected, how soon a process is ready on it, how much memory its members take."""

import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.measuring.history import one_group, stored_records, write_sqlite
from benchmarks.measuring.processes import resident_bytes
from muster.events.loading import Loading
from muster.events.projector import Projector
from muster.events.records import StoredRecord
from tests.muster_process import running_muster, sqlite_log


def projection_rates(*, groups: int, rounds: int) -> tuple[float, float, int]:
    """Events projected per second, as in a takeover and with each one decoded; and the number of events.

    The best of the rounds, as for any pure computation.
    """
    records = stored_records(one_group(rebalances=3), groups)
    return _best(_load, records, rounds), _best(_feed, records, rounds), len(records)


def _best(project: Callable[[list[StoredRecord]], None], records: list[StoredRecord], rounds: int) -> float:
    taken = []
    for _ in range(rounds):
        started = time.perf_counter()
        project(records)
        taken.append(time.perf_counter() - started)
    return len(records) / min(taken)


def _load(records: list[StoredRecord]) -> None:
    loading = Loading()
    loading.read(records)
    for _ in loading.fold():
        pass


def _feed(records: list[StoredRecord]) -> None:
    projector = Projector()
    for record in records:
        projector.feed(record)


def restart(*, groups: int) -> tuple[float, float, int, float]:
    """Seconds from the start of the process, and from the claim, until all is served; records; bytes per member."""
    with TemporaryDirectory(prefix="muster-bench-") as directory:
        with running_muster(log="memory:") as empty:
            base_bytes = resident_bytes(empty.pid)
        path = Path(directory)
        records = write_sqlite(path / "muster.db", one_group(), groups)
        started = time.perf_counter()
        with running_muster(log=sqlite_log(path)) as muster:
            ready_s = time.perf_counter() - started
            took_ms = max(event["took_ms"] for event in muster.events("partitions ready"))
            per_member = (resident_bytes(muster.pid) - base_bytes) / (groups * 10)
    return ready_s, took_ms / 1000, records, per_member
