"""A run: the cluster, the service, the clients; then one fault after another, and its outcome.

Does each step in order, and waits until all clients are served. Knows neither how faults are done, nor what is right.
"""

import asyncio
import random
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AsyncExitStack, ExitStack, contextmanager, suppress
from math import inf
from pathlib import Path
from typing import Any, Final

import msgspec

from muster.drills.load.asking import Clock
from muster.events.log.base import LogError
from tests.brokers.broker import BrokerFailed
from tests.brokers.cluster import Cluster, running_cluster
from tests.chaos.evidence import BROKERS_OFFSETS, StoredCommits, events_in, verified
from tests.chaos.faults import do
from tests.chaos.file_log import on_a_full_disk
from tests.chaos.ledger import Ledger, Noticed, Waited
from tests.chaos.libraries import Java, Librdkafka
from tests.chaos.load import USUAL, Library, Load, Size
from tests.chaos.schedule import Fault, Kind, Party
from tests.chaos.service import TOPIC_PARTITIONS, Mode, Muster, Service
from tests.chaos.verdict import Violation, violations
from tests.muster_process import MusterEnded

RECOVERED_WITHIN_S: Final = 300.0
FORMED_WITHIN_S: Final = 300.0
CHECK_INTERVAL_S: Final = 0.1
SNAPSHOT_DISK: Final = "16m"
STARTS: Final = 5

Say = Callable[[str], None]


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of a fault. `noticed`: errors that members act on; `hidden`: those that clients handle themselves.
    `whole_ms`: the time until all clients were served, from the end of the fault; None: not within the limit.
    """

    fault: str
    number: int
    kind: str
    whom: str
    at_ms: int
    whole_ms: int | None
    longest_wait_ms: int
    noticed: dict[str, int]
    hidden: dict[str, int]
    generations: int
    violations: tuple[str, ...]


class Run:
    """See the module."""

    def __init__(self, service: Service, load: Load, clock: Clock, seed: int) -> None:
        self._service = service
        self._load = load
        self._clock = clock
        self._now_ms = clock.now_ms
        self._dice = random.Random(seed)
        beside = service.log_topic if service.mode is Mode.STANDALONE else None
        bootstrap = service.cluster.bootstrap
        self._commits = (
            StoredCommits(bootstrap, BROKERS_OFFSETS) if beside is None else StoredCommits.beside(bootstrap, beside)
        )
        self._known: set[str] = set()

    async def whole_since(self, since_ms: int, *, within_s: float) -> int | None:
        """Wait until all clients are served; return how long that took, or None if it is over the limit."""
        deadline_s = time.monotonic() + within_s
        while True:
            self._service.note_ended()
            for muster in self._service.musters:
                if muster.process is None and not await self._has_started(muster):
                    return None
            if self._service.is_shared() and not self._load.unserved_since(since_ms):
                return self._now_ms() - since_ms
            if self._load.failures() or time.monotonic() > deadline_s:
                return None
            await asyncio.sleep(CHECK_INTERVAL_S)

    async def _has_started(self, muster: Muster) -> bool:
        """Start a process that has ended by itself, or was down when the fault ended."""
        try:
            await self._service.start_one(muster)
        except MusterEnded as error:
            self._service.ended.append(f"{muster.name} does not start: {error}")
            return False
        return True

    async def judged(self) -> list[Violation]:
        """Judge, and return the violations that were not reported before."""
        entries = list(self._load.ledger.entries)  # read first: the events behind a response are in the log by then
        log = await asyncio.to_thread(lambda: asyncio.run(events_in(self._service.log_url)))
        commits = await asyncio.to_thread(self._commits.read)
        findings = await asyncio.to_thread(verified, self._service.log_url)
        found = await asyncio.to_thread(violations, entries, log, commits, findings, self._load.sessions_ms)
        found += [Violation(number=7, text=text) for text in (*self._service.ended, *self._load.failures())]
        new = [each for each in found if str(each) not in self._known]
        self._known |= {str(each) for each in new}
        return new

    async def fault(self, fault: Fault) -> Outcome:
        """Inject one fault, wait until all clients are served, and judge."""
        at_ms, seen, generations = self._now_ms(), len(self._load.ledger.entries), self._load.generations
        found: list[Violation] = []
        try:
            if fault.whom is Party.FILE:
                whom, found = await on_a_full_disk(self._service.snapshots, fault, self._load.ledger, self._clock)
            else:
                whom = await do(fault, self._service, self._dice)
        except Exception as error:  # noqa: BLE001 -- a process that does not start is what is looked for
            whom = "?"
            found.append(Violation(number=7, text=f"{fault}: {error}"))
        whole_ms = await self.whole_since(self._now_ms(), within_s=RECOVERED_WITHIN_S)
        if whole_ms is None:
            unserved = self._load.unserved_since(at_ms)[:8]
            found.append(Violation(number=7, text=f"not served: {unserved}, {self._said()}"))
        try:
            found += await self.judged()
        except (LogError, TimeoutError, subprocess.SubprocessError) as error:
            found.append(Violation(number=5, text=f"the evidence could not be read: {error!r}"))
        entries = self._load.ledger.entries[seen:]
        waits = [each.waited_ms for each in entries if isinstance(each, Waited) and each.kind != "join"]
        errors = [each for each in entries if isinstance(each, Noticed)]
        return Outcome(
            fault=str(fault),
            number=fault.number,
            kind=fault.kind.value,
            whom=whom,
            at_ms=at_ms,
            whole_ms=whole_ms,
            longest_wait_ms=max(waits, default=0),
            noticed=dict(Counter(f"{each.kind} {each.error}" for each in errors if not each.is_hidden)),
            hidden=dict(Counter(each.error for each in errors if each.is_hidden)),
            generations=self._load.generations - generations,
            violations=tuple(map(str, found)),
        )

    def _said(self) -> str:
        return ", ".join(f"{each.name} has {each.shares()}" for each in self._service.musters)


def _libraries(service: Service, ledger: Ledger, clock: Clock) -> Iterator[Library]:
    """Start the groups of client libraries."""
    rest: dict[str, Any] = {"partitions": TOPIC_PARTITIONS, "ledger": ledger, "now_ms": clock.now_ms}
    yield Librdkafka(service.bootstraps, service.topic, **rest)
    if service.mode is Mode.SIDECAR:  # elsewhere there is nothing to consume
        yield Java(service.bootstraps[-1], service.cluster.bootstrap, service.topic, **rest)


async def _played(
    cluster: Cluster,
    faults: Sequence[Fault],
    *,
    seed: int,
    mode: Mode,
    size: Size,
    folder: Path,
    snapshots: Path,
    until_s: float,
    has_libraries: bool,
    say: Say,
) -> list[Outcome]:
    outcomes: list[Outcome] = []
    clock = Clock()
    async with AsyncExitStack() as stack:
        service = Service(cluster, mode, folder, snapshots)
        stack.push_async_callback(service.end)
        await service.start()
        ledger = stack.enter_context(Ledger(folder / "ledger.jsonl"))
        libraries = _libraries(service, ledger, clock) if has_libraries else ()
        load = Load(service.bootstraps, service.topic, ledger, clock, size, *libraries)
        stack.push_async_callback(load.close)
        service.group_ids = tuple(load.sessions_ms)
        load.start()
        run = Run(service, load, clock, seed)
        if await run.whole_since(clock.now_ms(), within_s=FORMED_WITHIN_S) is None:
            raise TimeoutError(f"the groups did not form: {load.unserved_since(0)} {load.failures()}")
        say(f"{len(load.members)} members of {size.groups} groups, on {cluster.how}; log {service.log_url}")
        with (folder / "faults.jsonl").open("wb") as report:
            for fault in faults:
                if time.monotonic() > until_s:
                    break
                outcome = await run.fault(fault)
                outcomes.append(outcome)
                report.write(msgspec.json.encode(outcome) + b"\n")
                report.flush()
                say(line_of(outcome))
                if outcome.whole_ms is None:
                    break  # whatever comes next is no news
    return outcomes


def line_of(outcome: Outcome) -> str:
    """One line for people, and one for each violation."""
    whole = "not whole again" if outcome.whole_ms is None else f"whole after {outcome.whole_ms / 1000:.1f} s"
    noticed = ", ".join(f"{count} x {error}" for error, count in outcome.noticed.items()) or "nothing"
    bad = "".join(f"\n      {text}" for text in outcome.violations)
    return (
        f"{outcome.number:4} {outcome.fault} ({outcome.whom}): {whole}, longest wait"
        f" {outcome.longest_wait_ms / 1000:.1f} s, {outcome.generations} generations; noticed: {noticed}{bad}"
    )


@contextmanager
def _small_disk(folder: Path) -> Iterator[bool]:
    """A disk of a few MB, if one may be had (root alone); returns whether."""
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={SNAPSHOT_DISK}", "chaos", str(folder)], capture_output=True, check=False
    )
    try:
        yield mounted.returncode == 0
    finally:
        if mounted.returncode == 0:
            subprocess.run(["umount", "-l", str(folder)], capture_output=True, check=False)


@contextmanager
def _patient_cluster(say: Say) -> Iterator[Cluster]:
    """A cluster; on a machine that is busy with other things it may take several attempts. Raises BrokerFailed."""
    with ExitStack() as stack:
        yield _started(stack, say)


def _started(stack: ExitStack, say: Say) -> Cluster:
    for _ in range(STARTS - 1):
        try:
            return stack.enter_context(running_cluster())
        except BrokerFailed as error:
            say(f"tried again: {str(error).splitlines()[0]}")
    return stack.enter_context(running_cluster())


def run(
    faults: Sequence[Fault],
    *,
    seed: int,
    mode: Mode,
    folder: Path,
    size: Size = USUAL,
    begin_within_s: float = inf,
    has_libraries: bool = True,
    say: Say = print,
) -> list[Outcome]:
    """Play these faults; `folder` gets the ledger, the outcomes, and the processes' logs. Raises BrokerFailed.

    `begin_within_s`: no fault begins later.
    """
    snapshots, until_s = folder / "snapshots", time.monotonic() + begin_within_s
    snapshots.mkdir(parents=True, exist_ok=True)
    with _small_disk(snapshots) as is_small, _patient_cluster(say) as cluster:
        if not is_small:
            say("no disk could be mounted (that is root's): a full one is left out")
            faults = [fault for fault in faults if fault.kind is not Kind.FULL]
        played = _played(
            cluster,
            faults,
            seed=seed,
            mode=mode,
            size=size,
            folder=folder,
            snapshots=snapshots,
            until_s=until_s,
            has_libraries=has_libraries,
            say=say,
        )
        try:
            return asyncio.run(played)
        finally:
            for node in cluster.nodes:
                with suppress(OSError):
                    (folder / f"broker-{node}.log").write_text(cluster.said(node), encoding="utf-8")
