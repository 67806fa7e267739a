"""The owner of a million committed offsets is killed: how soon they can be fetched and committed again at another
process.

Two standalone processes share the partitions of a log in one Kafka broker; in one run the survivor has followed those
of the other one, in the other it has not (`--no-hot-standbys`).
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack

import msgspec
import uvloop
from rich.console import Console

from benchmarks.measuring.groups import TOPIC, Failed, Member
from benchmarks.measuring.history import write
from benchmarks.measuring.processes import resident_bytes
from benchmarks.measuring.takeovers import Coordinated, Outage
from benchmarks.measuring.wire import Link
from benchmarks.results import Figure, Results
from muster.coordinator.group.commands import OffsetToCommit
from muster.coordinator.group.offsets import OffsetsChange
from muster.coordinator.offsets.codec import records
from muster.events.ids import GroupId
from muster.events.log.kafka.names import OFFSETS_SUFFIX
from muster.events.log.url import open_log
from muster.events.partitioner import partition_for
from muster.events.records import Transition
from tests.brokers.broker import MEASURED_JVM_OPTIONS
from tests.brokers.choice import running_broker
from tests.muster_process import running_muster
from tests.sharing_processes import sharing_process, until_served, until_shared, until_standing_by

PARTITIONS = 8
OFFSETS_OF_A_GROUP = 1_000
AT_ONCE = 10
"""Offsets per transition."""
WITHOUT, WITH = "without", "standby"
COLUMNS = {WITHOUT: "without standbys", WITH: "with them"}


class Takeover(msgspec.Struct, frozen=True):
    """Waits in ms by kind of request; what the survivor reports about the takeover; its memory before that."""

    waits: dict[str, list[float]]
    took_ms: int
    records: int
    resident_bytes: int


def measure(offsets: int, console: Console) -> Results:
    """Measure all figures in one run."""
    groups = [f"bench-committed-{number}" for number in range(offsets // OFFSETS_OF_A_GROUP)]
    with running_broker(how="process", jvm_options=MEASURED_JVM_OPTIONS) as broker:
        log = f"kafka://{broker.bootstrap}/committed"
        with running_muster(log=log, options=["--log-partitions", str(PARTITIONS), "--log-replication", "1"]):
            pass  # it creates the topics
        with console.status(f"writing {offsets:,} offsets of {len(groups):,} groups"):
            of_offsets = open_log(log + OFFSETS_SUFFIX, partitions=PARTITIONS, replication=1, audit_window_ms=0)
            uvloop.run(write(of_offsets, _told(groups)))
        taken = {}
        for column in (WITHOUT, WITH):
            with console.status(f"{COLUMNS[column]}: the owner is killed"):
                taken[column] = _taken_over(log, groups, follows=column == WITH)
        how = broker.how
    figures = [
        Figure(
            name=f"{kind}, the longest wait",
            unit="ms",
            values={column: max(each.waits[kind]) for column, each in taken.items()},
        )
        for kind in ASKS
    ]
    figures += [
        Figure(name=name, unit=unit, values={column: value(each) for column, each in taken.items()})
        for name, unit, value in (
            ("the takeover itself, from its claims on", "ms", lambda each: float(each.took_ms)),
            ("records of offsets that it read", "1", lambda each: float(each.records)),
            ("memory of the survivor before", "MB", lambda each: each.resident_bytes / 1_000_000),
        )
    ]
    title = f"kill -9 of the owner of half of {offsets:,} committed offsets"
    return Results(title=title, columns=COLUMNS, figures=figures, kafka=how)


def _told(groups: Sequence[str]) -> Iterator[tuple[GroupId, Transition]]:
    for group_id in map(GroupId, groups):
        for first in range(0, OFFSETS_OF_A_GROUP, AT_ONCE):
            committed = tuple(map(_offset, range(first, first + AT_ONCE)))
            yield group_id, tuple(records(OffsetsChange(group_id=group_id, committed=committed), ()))


def _offset(partition: int) -> OffsetToCommit:
    now_ms = int(time.time() * 1_000)
    return OffsetToCommit(
        topic=TOPIC,
        partition=partition,
        offset=partition,
        leader_epoch=1,
        metadata="",
        commit_ms=now_ms,
        expire_ms=None,
    )


def _taken_over(log: str, groups: Sequence[str], *, follows: bool) -> Takeover:
    more = () if follows else ("--no-hot-standbys",)
    topics = [f"{TOPIC}:{OFFSETS_OF_A_GROUP}"]
    with ExitStack() as stack:
        killed, survivor = (
            stack.enter_context(sharing_process(log, node_id, partitions=PARTITIONS, topics=topics, more=more))
            for node_id in (1, 2)
        )
        until_shared(killed, survivor, partitions=PARTITIONS)
        until_served(killed, survivor)
        if follows:
            until_standing_by(survivor, partitions=PARTITIONS // 2)
        owned = killed.events("partitions shared")[-1]["ours"]
        theirs = [[_simple(group_id)] for group_id in groups if partition_for(group_id, PARTITIONS) in owned]
        before, resident = len(survivor.events("partitions ready")), resident_bytes(survivor.pid)
        since_s = time.perf_counter()
        killed.kill()
        outage = Outage(survivor.bootstrap, Coordinated(killed.bootstrap, theirs))
        waits = uvloop.run(outage.waits_ms(ASKS, since_s=since_s))
        lines = survivor.events("partitions ready")[before:]
        took_ms = max(line["took_ms"] for line in lines)
        return Takeover(waits, took_ms, sum(line["offsets"] for line in lines), resident)


def _simple(group_id: str) -> Member:
    """A simple consumer, which only commits to the group."""
    return Member(link=Link(), group_id=group_id, instance=None)


async def _fetch(link: Link, group: Sequence[Member]) -> int:
    """Fetch the last offset of the group."""
    asked = [{"name": TOPIC, "partition_indexes": [OFFSETS_OF_A_GROUP - 1]}]
    answer = await link.ask("OffsetFetch", 5, group_id=group[0].group_id, topics=asked)
    code: int = answer.error_code.value
    if code == 0 and answer.topics[0].partitions[0].committed_offset != OFFSETS_OF_A_GROUP - 1:
        raise Failed(f"an offset of {group[0].group_id} is lost")
    return code


async def _commit(link: Link, group: Sequence[Member]) -> int:
    """Commit an offset of the group."""
    partition = {"partition_index": 0, "committed_offset": 0, "committed_leader_epoch": -1, "committed_metadata": ""}
    answer = await link.ask(
        "OffsetCommit",
        8,
        group_id=group[0].group_id,
        generation_id_or_member_epoch=-1,
        member_id="",
        group_instance_id=None,
        topics=[{"name": TOPIC, "partitions": [partition]}],
    )
    code: int = answer.topics[0].partitions[0].error_code.value
    return code


ASKS = {"fetched offsets": _fetch, "commits": _commit}
