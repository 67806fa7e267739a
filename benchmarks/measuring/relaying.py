"""Produce and consume with Kafka's own tools through an address, and measure the CPU time of a relay behind it.

Each run is a separate process, so that runs share only the broker. Records are 1 KB, one partition; producers and
consumers have Kafka's defaults (acks=all, linger.ms=5, batches of 16 KB).
"""

import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from benchmarks.measuring.groups import Failed
from benchmarks.measuring.processes import cpu_seconds
from tests.brokers.broker import MEASURED_JVM_OPTIONS
from tests.brokers.jars import resolved_libs
from tests.brokers.java_tools import LOG_OPTIONS, JavaTool

RECORD_BYTES = 1_024
MB = 1_048_576  # as the tools count
WITHIN_S = 600
# Not the JVM options of short-lived tools: a client that compiles too little should not be what is measured.
_PRODUCED = re.compile(r"\(([\d.]+) MB/sec\)")


class Way(msgspec.Struct, frozen=True, kw_only=True):
    """An address to produce to and consume from; `pid`: that of the relay behind it, None for the broker itself."""

    name: str
    bootstrap: str
    pid: int | None = None


class Moved(msgspec.Struct, frozen=True, kw_only=True):
    """`mb_per_cpu_s`: MB per second of the relay's CPU time; None without a relay."""

    mb_per_s: float
    mb_per_cpu_s: float | None

    def __str__(self) -> str:
        relay = "" if self.mb_per_cpu_s is None else f" ({self.mb_per_cpu_s:,.0f} MB/core s)"
        return f"{self.mb_per_s:,.1f} MB/s{relay}"


@contextmanager
def topic(bootstrap: str, name: str) -> Iterator[str]:
    """Create a topic with one partition; it is deleted afterwards."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    config = {"file.delete.delay.ms": "1000"}
    admin.create_topics([NewTopic(name, 1, config=config)])[name].result()
    try:
        yield name
    finally:
        admin.delete_topics([name])[name].result()


def flood(way: Way, to: str, *, records: int) -> Moved:
    """Produce as fast as possible."""
    before = _spent(way)
    lines = _run(
        JavaTool.PRODUCER_PERF_TEST,
        *("--bootstrap-server", way.bootstrap, "--topic", to, "--record-size", str(RECORD_BYTES)),
        *("--num-records", str(records), "--throughput", "-1"),
    )
    told = [found for line in lines if (found := _PRODUCED.search(line))]
    if not told:
        raise Failed(f"{way.name}: the producer told nothing: {lines}")
    return _moved(way, float(told[-1][1]), records, before)


def drain(way: Way, of: str, *, records: int, group_id: str) -> Moved:
    """Consume as a member of a group; the rate is that of the fetches, without the rebalance before them."""
    before = _spent(way)
    lines = _run(
        JavaTool.CONSUMER_PERF_TEST,
        *("--bootstrap-server", way.bootstrap, "--topic", of, "--group", group_id),
        *("--num-records", str(records), "--timeout", "30000"),
    )
    titles, values = (line.split(", ") for line in lines[-2:])
    told = dict(zip(titles, values, strict=True))
    if int(told["data.consumed.in.nMsg"]) < records:
        raise Failed(f"{way.name}: {told['data.consumed.in.nMsg']} of {records} records came")
    return _moved(way, float(told["fetch.MB.sec"]), records, before)


def _run(tool: JavaTool, *arguments: str) -> list[str]:
    command = resolved_libs().command(tool.value, *arguments, options=(*MEASURED_JVM_OPTIONS, *LOG_OPTIONS))
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=WITHIN_S, stdin=subprocess.DEVNULL, check=False
    )
    if done.returncode != 0:
        raise Failed(f"{tool.value} ended with {done.returncode}: {done.stdout[-500:]}{done.stderr[-1500:]}")
    return done.stdout.strip().splitlines()


def _spent(way: Way) -> float:
    return 0.0 if way.pid is None else cpu_seconds(way.pid)


def _moved(way: Way, mb_per_s: float, records: int, before: float) -> Moved:
    if way.pid is None:
        return Moved(mb_per_s=mb_per_s, mb_per_cpu_s=None)
    spent_s = max(_spent(way) - before, 0.01)  # the kernel counts hundredths
    return Moved(mb_per_s=mb_per_s, mb_per_cpu_s=records * RECORD_BYTES / MB / spent_s)
