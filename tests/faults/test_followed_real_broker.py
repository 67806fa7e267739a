"""`history --follow`, a separate process, on a real broker: down at first, hung, killed, and each time back."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from uuid import uuid4

import msgspec
import pytest

from muster.events.events import Event
from muster.events.log.url import open_log
from tests.brokers.cluster import Cluster, running_cluster
from tests.replay.stories import a_night
from tests.replay.written import PARTITIONS
from tests.waiting import until

pytestmark = [
    pytest.mark.broker,
    pytest.mark.skipif(os.environ.get("MUSTER_TEST_NO_KAFKA") == "1", reason="no Kafka is wanted"),
]

WITHIN_S = 120


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with running_cluster(1) as cluster:
        yield cluster


class Line(msgspec.Struct):
    """A line of the answer; what concerns the coordinator has no number."""

    seq: int | None = None


class Follower:
    """The command, and its output so far."""

    def __init__(self, process: subprocess.Popen[bytes], out: Path, err: Path) -> None:
        self.process = process
        self._out = out
        self._err = err

    @property
    def seqs(self) -> list[int]:
        """The numbers of the events that it has shown."""
        *whole, _ = self._out.read_text(encoding="utf-8").split("\n")
        lines = [msgspec.json.decode(line, type=Line) for line in whole]
        return [line.seq for line in lines if line.seq is not None]

    @property
    def said(self) -> list[str]:
        """Its lines on stderr."""
        return [line.removeprefix("muster replay: ") for line in self._err.read_text(encoding="utf-8").splitlines()]


@contextmanager
def following(url: str, group: str, directory: Path) -> Iterator[Follower]:
    """Run the command; it continues until it is interrupted."""
    out, err = directory / "out", directory / "err"
    line = [sys.executable, "-m", "muster", "replay", "history", group, "--follow", "--format", "jsonl", "--log", url]
    with out.open("wb") as stdout, err.open("wb") as stderr, subprocess.Popen(line, stdout=stdout, stderr=stderr) as it:
        try:
            yield Follower(it, out, err)
            assert it.poll() is None
        finally:
            it.kill()


async def test_a_follower_waits_through_whatever_its_broker_does(cluster: Cluster, tmp_path: Path) -> None:
    """It reports each outage and its end once; each event is shown once, in order."""
    night = a_night()
    url = f"kafka://{cluster.bootstrap}/events-{uuid4().hex[:8]}"
    log = open_log(url, partitions=PARTITIONS)
    await log.open()
    writer = await log.claim(night.partition)
    transitions = night.stored_transitions()
    numbers = [[each.seq for each in events if isinstance(each, Event)] for _, events in night.transitions]
    quarter = len(transitions) // 4
    parts = [(at, at + quarter) for at in range(0, len(transitions), quarter)]

    async def append(part: int) -> None:
        begin, end = parts[part]
        assert not any(await writer.append(transitions[begin:end]))

    await append(0)
    cluster.kill(1)
    with following(url, str(night.group_id), tmp_path) as follower:

        async def reported(lines: int, what: str) -> str:
            await until(lambda: len(follower.said) == lines, lambda: f"{what}: {follower.said}", within_s=WITHIN_S)
            return follower.said[-1]

        async def shown(part: int) -> None:
            wanted = list(chain.from_iterable(numbers[: parts[part][1]]))
            await until(lambda: follower.seqs == wanted, lambda: f"{follower.seqs} {follower.said}", within_s=WITHIN_S)

        assert (await reported(1, "it is away")).endswith("; waiting for it")
        cluster.start(1)
        assert await reported(2, "it is there") == f"{url} answers again"
        await shown(0)
        cluster.pause(1)
        assert (await reported(3, "it hangs")) == f"{url} has not answered for 5 s; waiting for it"
        cluster.resume(1)
        assert await reported(4, "it goes on") == f"{url} answers again"
        await append(1)
        await shown(1)
        cluster.kill(1)
        assert (await reported(5, "it is killed")).endswith("; waiting for it")
        cluster.start(1)
        assert await reported(6, "it is back") == f"{url} answers again"
        for part in range(2, len(parts)):
            await append(part)
            await shown(part)
        assert len(follower.said) == 6
    await log.close()
