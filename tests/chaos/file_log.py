"""A Muster of its own, whose log is a file on a small disk that becomes full under load, and has room again.

This one service, from its start to its verdict, independent of the rest of the run.
"""

import asyncio
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Final
from uuid import uuid4

from muster.drills.load.asking import Clock
from tests.brokers.broker import lasting_ports
from tests.chaos.evidence import StoredCommit, events_in, verified
from tests.chaos.faults import full
from tests.chaos.ledger import CommitReply, Entry, Ledger
from tests.chaos.load import Load, Size
from tests.chaos.schedule import Fault
from tests.chaos.verdict import Violation, violations
from tests.muster_process import MusterProcess

WITHIN_S: Final = 120.0
CHECK_INTERVAL_S: Final = 0.1
SIZE: Final = Size(groups=2, members=3)


async def on_a_full_disk(folder: Path, fault: Fault, of_run: Ledger, clock: Clock) -> tuple[str, list[Violation]]:
    """Serve from a file of a folder whose disk is full for a while, then end as `kill -9` does, and judge.

    Errors and long waits of its members are noted in the ledger of the run, too. Returns the name of the file.
    """
    path = folder / f"{uuid4().hex[:8]}.db"
    url, output = f"sqlite:///{path}", folder.parent / f"{path.stem}.log"
    arguments = ["--log", url, "--topic", f"work:{SIZE.members}", "--config", "group.initial.rebalance.delay.ms=300"]
    process = MusterProcess(*arguments, output=output, port=lasting_ports(1)[0])
    await asyncio.to_thread(process.start)
    found: list[Violation] = []
    with Ledger(folder.parent / f"{path.stem}.jsonl") as ledger:
        load = Load([process.bootstrap], "work", ledger, clock, SIZE)
        try:
            load.start()
            await _served(load, clock.now_ms())
            with full(folder):
                await asyncio.sleep(fault.for_s)
            await _served(load, clock.now_ms())
        except TimeoutError as error:
            found.append(Violation(number=7, text=f"{path.name}: {error}"))
        finally:
            await load.close()
            await asyncio.to_thread(process.kill)
        entries = ledger.entries
    for entry in entries:
        of_run.note_trouble(entry)
    log = await events_in(url)
    findings = await asyncio.to_thread(verified, url)
    found += violations(entries, log, list(_stored(path, entries)), findings, load.sessions_ms)
    _remove(path)
    return path.name, found


def _remove(path: Path) -> None:
    for each in path.parent.glob(f"{path.name}*"):
        each.unlink()


async def _served(load: Load, since_ms: int) -> None:
    """Wait until all members are served. Raises TimeoutError."""
    deadline_s = time.monotonic() + WITHIN_S
    while unserved := load.unserved_since(since_ms):
        if time.monotonic() > deadline_s or load.failures():
            raise TimeoutError(f"not served: {unserved} {load.failures()}")
        await asyncio.sleep(CHECK_INTERVAL_S)


def _stored(path: Path, entries: list[Entry]) -> Iterator[StoredCommit]:
    """The commits that are there, or were: a file keeps the last one of each partition, and offsets only grow."""
    with closing(sqlite3.connect(path)) as connection:
        rows = connection.execute('SELECT group_id, partition, "offset", metadata FROM offsets').fetchall()
    last = {(group_id, partition): (offset, metadata) for group_id, partition, offset, metadata in rows}
    for answer in entries:
        if isinstance(answer, CommitReply):
            offset, metadata = last.get((answer.group_id, answer.partition), (-1, ""))
            if answer.offset <= offset and answer.generation_id <= int(metadata):
                yield StoredCommit(
                    group_id=answer.group_id,
                    partition=answer.partition,
                    offset=answer.offset,
                    metadata=str(answer.generation_id),
                    place=path.name,
                )
