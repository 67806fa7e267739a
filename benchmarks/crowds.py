"""Large groups: the cost of a member in the rules alone, and how soon a server answers it."""

import asyncio
import gc
import itertools
import statistics
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
import uvloop
from rich.console import Console

from benchmarks.measuring.groups import Failed, Member, links_to, new_member
from benchmarks.measuring.wire import Link
from benchmarks.results import KAFKA, STANDALONE, Figure, Goal, Results
from muster.coordinator.group.commands import AnyCommand
from muster.events.ids import UNKNOWN_MEMBER_ID, MemberId
from tests.brokers.broker import MEASURED_JVM_OPTIONS
from tests.brokers.choice import running_broker
from tests.coordinator.group.crowd import Crowd, formed
from tests.muster_process import running_muster, sqlite_log

SIZES = (100, 1_000, 5_000)
TIMES_SMALLEST = 1.5
DECISION_MS = 20
ROUNDS = 400
CONFIG = {"group.initial.rebalance.delay.ms": "3000"}
REPEATS = 5
GIVES_UP_AFTER_S = 300


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """`restarts`: of static members, one after another, in a group of each of the `sizes`."""

    sizes: Sequence[int] = SIZES
    restarts: int
    kafka_log: bool


def measure(load: Load, console: Console) -> Results:
    """Measure all figures in one run."""
    figures, left_out = rules_figures(load.sizes, console), {}
    with ExitStack() as stack:
        broker = stack.enter_context(running_broker(settings=CONFIG, how="process", jvm_options=MEASURED_JVM_OPTIONS))
        directory = Path(stack.enter_context(TemporaryDirectory(prefix="muster-bench-")))
        servers = {KAFKA: broker.bootstrap}
        servers["sqlite"] = stack.enter_context(running_muster(log=sqlite_log(directory), config=CONFIG)).bootstrap
        if load.kafka_log:
            log = f"kafka://{broker.bootstrap}/__muster_events"
            servers["kafka-log"] = stack.enter_context(running_muster(log=log, config=CONFIG)).bootstrap
        for size in load.sizes:
            name = f"a static member restarts in a group of {size:,}, p50"
            values = {}
            for server, bootstrap in servers.items():
                with console.status(f"{server}: a group of {size:,}"):
                    try:
                        values[server] = uvloop.run(restarts(bootstrap, f"crowd-{size}", size, load.restarts))
                    except (Failed, TimeoutError) as error:
                        left_out[f"{name}, {STANDALONE[server]}"] = str(error) or "it took too long to form"
            figures.append(Figure(name=name, unit="ms", values=values, goal=Goal(within_kafka=1)))
    columns = {server: title for server, title in STANDALONE.items() if server in servers}
    return Results(
        title="Large groups, one run, one machine",
        columns=columns,
        figures=figures,
        kafka=broker.how,
        left_out=left_out,
    )


# ---- the rules alone -------------------------------------------------------------------------------


def rules_figures(sizes: Sequence[int], console: Console) -> list[Figure]:
    """CPU time of decisions, measured in groups of all sizes in turn; the goals are relative to the smallest group."""
    with console.status("forming groups, without a server"):
        crowds = {size: formed(size) for size in sizes}
    with console.status("decisions"):
        whole = {size: [_whole_rebalance(crowd) for _ in range(REPEATS)] for size, crowd in crowds.items()}
        joins, rejoins = joins_in_turn(crowds)
    figures = []
    for what, costs in (("a new member's join, both steps,", joins), ("a member's rejoin", rejoins)):
        goal = Goal(at_most=round(TIMES_SMALLEST * costs[sizes[0]], 1))
        figures += [_figure(what, size, costs[size], "us", goal if size != sizes[0] else None) for size in sizes]
    for which, what in enumerate(("the end of a join phase", "the leader's sync")):
        best_ms = {size: min(each[which] for each in taken) / 1000 for size, taken in whole.items()}
        figures += [_figure(what, size, best_ms[size], "ms", Goal(at_most=DECISION_MS)) for size in sizes]
    return figures


def _figure(what: str, size: int, value: float, unit: str, goal: Goal | None) -> Figure:
    return Figure(name=f"rules: {what} in a group of {size:,}", unit=unit, values={"sqlite": value}, goal=goal)


def joins_in_turn(crowds: Mapping[int, Crowd]) -> tuple[dict[int, float], dict[int, float]]:
    """Medians in us, by size: of a new member's join, and of a rejoin in the join phase that the first one started."""
    joins: dict[int, list[float]] = {size: [] for size in crowds}
    rejoins: dict[int, list[float]] = {size: [] for size in crowds}
    for number in range(ROUNDS):
        for size, crowd in crowds.items():
            taken_us = _sent(crowd, crowd.join(UNKNOWN_MEMBER_ID, proposed=f"newcomer-{number}"))
            joins[size].append(taken_us + _sent(crowd, crowd.join(MemberId(f"newcomer-{number}"))))
    for number in range(min(crowds) - 1):
        for size, crowd in crowds.items():
            member_id = next(itertools.islice(crowd.group.members, number, None))
            rejoins[size].append(_sent(crowd, crowd.join(member_id)))
    medians = ({size: statistics.median(taken) for size, taken in each.items()} for each in (joins, rejoins))
    return next(medians), next(medians)


def _whole_rebalance(crowd: Crowd) -> tuple[float, float]:
    """In us: the last rejoin, which ends the join phase, and the leader's sync, which ends the rebalance."""
    crowd.come(f"newcomer-in-{crowd.group.generation_id}")
    *others, last = [each for each in crowd.group.members if each not in crowd.soft.parked_joins]
    for member_id in others:
        crowd.send(crowd.join(member_id))
    end_us = _sent(crowd, crowd.join(last))
    leader_id = crowd.group.leader_id
    assert leader_id is not None
    for member_id in list(crowd.group.members):
        if member_id != leader_id:
            crowd.send(crowd.sync(member_id))
    return end_us, _sent(crowd, crowd.sync(leader_id))


def _sent(crowd: Crowd, command: AnyCommand) -> float:
    """CPU time in us, without that of the garbage collector, which runs at unpredictable times."""
    gc.disable()
    started = time.process_time()
    crowd.send(command)
    taken_s = time.process_time() - started
    gc.enable()
    return taken_s * 1e6


# ---- through a server ------------------------------------------------------------------------------


async def restarts(bootstrap: str, group_id: str, size: int, count: int) -> float:
    """Median time in ms until a restarted static member, which has no member id, gets its response.

    No other member is affected, and the server stores the new member id. Raises Failed, TimeoutError.
    """
    async with asyncio.timeout(GIVES_UP_AFTER_S):
        links = await links_to(bootstrap, size)
        followers = await _form(links, group_id)
        taken = []
        for number in range(count):
            member = followers[number % len(followers)]
            again = Member(link=member.link, group_id=group_id, instance=member.instance)
            started = time.perf_counter()
            await again.join()
            taken.append((time.perf_counter() - started) * 1000)
        for link in links:
            link.close()
        return statistics.median(taken)


async def _form(links: list[Link], group_id: str) -> list[Member]:
    """Form a stable group of static members, one on each link; return those that are not the leader."""
    members = [new_member(link, group_id, number, static=True) for number, link in enumerate(links)]
    while True:
        joined = await asyncio.gather(*(member.join() for member in members))
        if any(codes := await asyncio.gather(*(m.sync(j) for m, j in zip(members, joined, strict=True)))):
            if set(codes) - {0, 27}:
                raise Failed(f"SyncGroup of {group_id}: {sorted(set(codes))}")
            continue
        return [member for member, answer in zip(members, joined, strict=True) if not answer.members]
