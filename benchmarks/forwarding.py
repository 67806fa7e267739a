"""Requests forwarded from the sidecar of the clients to the one that owns their groups, compared with Kafka.

Two sidecars share a log of one partition in front of one broker: one of them owns all groups, the other one none, and
all clients are connected to that one.
"""

import secrets
import statistics
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

import uvloop
from rich.console import Console

from benchmarks.measuring.groups import Member
from benchmarks.measuring.heartbeats import WARMING, flood, form_groups
from benchmarks.measuring.processes import cpu_seconds
from benchmarks.results import KAFKA, SIDECAR, Figure, Goal, Results
from tests.brokers.broker import MEASURED_JVM_OPTIONS
from tests.brokers.choice import running_broker
from tests.muster_process import MusterProcess
from tests.sharing_processes import SHARED_WITHIN_S, sharing_sidecar
from tests.waiting import until_so

NODE_IDS = (1, 2)
FLOODS = ((8, 64), (200, 1))
FORWARDED = "sidecar"


def measure(*, groups: int, seconds: float, turns: int, console: Console) -> Results:
    """Measure all figures in one run."""
    with ExitStack() as stack:
        broker = stack.enter_context(running_broker(how="process", jvm_options=MEASURED_JVM_OPTIONS))
        console.print(f"[dim]{broker.how}[/]")
        secret = Path(stack.enter_context(TemporaryDirectory())) / "secret"
        secret.write_text(secrets.token_hex(32))
        log = f"kafka://{broker.bootstrap}/__muster_events"
        sidecars = [
            stack.enter_context(sharing_sidecar(broker.bootstrap, log, node_id, secret=secret, partitions=1))
            for node_id in NODE_IDS
        ]
        owner, frontend = _owner_and_frontend(sidecars)
        servers = {KAFKA: broker.bootstrap, FORWARDED: frontend.bootstrap}
        figures = uvloop.run(
            _figures(servers, (owner, frontend), groups=groups, seconds=seconds, turns=turns, console=console)
        )
    columns = {name: SIDECAR[name] for name in servers}
    return Results(
        title="Forwarded by one sidecar to another one, beside Kafka itself",
        columns=columns,
        figures=figures,
        kafka=broker.how,
    )


def _owner_and_frontend(sidecars: list[MusterProcess]) -> tuple[MusterProcess, MusterProcess]:
    def shares() -> list[list[int] | None]:
        told = [each.events("partitions shared") for each in sidecars]
        return [each[-1]["ours"] if each and not each[-1]["moving"] else None for each in told]

    def shared() -> bool:
        return sorted(len(share) for share in shares() if share is not None) == [0, 1]

    until_so(shared, shares, within_s=SHARED_WITHIN_S)
    owner = next(each for each, share in zip(sidecars, shares(), strict=True) if share)
    return owner, next(each for each in sidecars if each is not owner)


async def _figures(
    servers: dict[str, str],
    processes: tuple[MusterProcess, MusterProcess],
    *,
    groups: int,
    seconds: float,
    turns: int,
    console: Console,
) -> list[Figure]:
    members: dict[str, list[Member]] = {}
    for name, bootstrap in servers.items():
        with console.status(f"{name}: forming {groups} groups of 10"):
            members[name] = await form_groups(bootstrap, f"bench-{name}", groups=groups, size=10, static=False)
    figures = []
    for connections, window in FLOODS:
        what = f"heartbeats, {connections} x {window} in flight"
        rates: dict[str, list[float]] = {name: [] for name in servers}
        used_s, sent = 0.0, 0.0
        for turn in range(turns):
            for name, bootstrap in servers.items():
                before_s = sum(cpu_seconds(each.pid) for each in processes)
                with console.status(f"{name}: {what}, turn {turn + 1}"):
                    rate = await flood(
                        bootstrap, members[name], connections=connections, window=window, seconds=seconds / turns
                    )
                rates[name].append(rate)
                if name == FORWARDED:
                    used_s += sum(cpu_seconds(each.pid) for each in processes) - before_s
                    sent += rate * (1 + WARMING) * seconds / turns
        medians = {name: statistics.median(each) for name, each in rates.items()}
        figures.append(Figure(name=what, unit="1/s", values=medians, goal=Goal(times_kafka=1)))
        figures.append(
            Figure(
                name="... for each second that both sidecars were on a core",
                unit="1",
                values={FORWARDED: sent / used_s},
            )
        )
    return figures
