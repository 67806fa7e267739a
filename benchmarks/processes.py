"""Several processes at one address (`--processes`) compared with one, in front of one broker: the cost of each relayed
MB.

Many connections repeatedly fetch the same batch, so that nearly all bytes go one way and all responses are the same.
Then they send heartbeats: one process answers them itself, a frontend of several forwards them to their owner.
"""

import socket
import statistics
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

import msgspec
import uvloop
from rich.console import Console

from benchmarks.measuring.groups import Member
from benchmarks.measuring.heartbeats import WARMING, flood, flood_with, form_groups
from benchmarks.measuring.pings import FETCH, PRODUCE, answer_to, fetch_of, produce_of
from benchmarks.measuring.processes import cpu_seconds
from benchmarks.measuring.relaying import MB, topic
from benchmarks.results import Figure, Goal, Results
from tests.brokers.broker import MEASURED_JVM_OPTIONS, lasting_ports
from tests.brokers.choice import running_broker
from tests.coordinator.kio_client import frame, with_length
from tests.muster_process import MusterProcess, running_muster
from tests.waiting import until_so

FRONTENDS = 2
CONNECTIONS = 200
"""The kernel distributes them randomly: with few connections, one frontend would often get far more than half."""
BATCH_BYTES = 65_536
GROUPS = 100
ONE, SEVERAL = "one", "sidecar"
COLUMNS = {ONE: "one process", SEVERAL: f"--processes {FRONTENDS}"}


class Way(msgspec.Struct, frozen=True, kw_only=True):
    """A sidecar, and its processes by role."""

    bootstrap: str
    pids: Mapping[str, int]

    def spent_s(self) -> dict[str, float]:
        return {role: cpu_seconds(pid) for role, pid in self.pids.items()}


class Work(msgspec.Struct, frozen=True, kw_only=True):
    """The answered requests, per second and in total, and the CPU time of each process."""

    rate: float
    answered: float
    spent_s: Mapping[str, float]

    @property
    def per_cpu_s(self) -> float:
        return self.answered / sum(self.spent_s.values())

    @property
    def busiest(self) -> float:
        """The share of the work that the busiest process did."""
        return max(self.spent_s.values()) / sum(self.spent_s.values())


def measure(*, seconds: float, turns: int, console: Console) -> Results:
    """Measure all figures in one run."""
    with ExitStack() as stack:
        broker = stack.enter_context(running_broker(how="process", jvm_options=MEASURED_JVM_OPTIONS))
        console.print(f"[dim]{broker.how}[/]")
        ways = {
            name: stack.enter_context(_sidecar(broker.bootstrap, name, frontends))
            for name, frontends in zip(COLUMNS, (1, FRONTENDS), strict=True)
        }
        to = stack.enter_context(topic(broker.bootstrap, "bench-relayed"))
        figures = uvloop.run(_figures(ways, to, seconds=seconds / turns, turns=turns, console=console))
    return Results(
        title="Several processes at one address, beside one", columns=COLUMNS, figures=figures, kafka=broker.how
    )


@contextmanager
def _sidecar(broker: str, name: str, frontends: int) -> Iterator[Way]:
    listen, base, metrics = lasting_ports(3)
    options = ["--listen", f"127.0.0.1:{listen}", "--broker-base-port", str(base), "--metrics", f"127.0.0.1:{metrics}"]
    options += ["--upstream", broker, "--log-replication", "1", "--processes", str(frontends)]
    with running_muster(log=f"kafka://{broker}/__muster_events_{name}", options=options) as muster:
        children = 1 + frontends if frontends > 1 else 0
        until_so(lambda: len(_pids(muster)) == 1 + children, lambda: muster.output[-2_000:])
        yield Way(bootstrap=muster.bootstrap, pids=_pids(muster))


def _pids(muster: MusterProcess) -> dict[str, int]:
    """The process itself, and below it the owner and the frontends."""
    top = muster.pid
    below = Path(f"/proc/{top}/task/{top}/children").read_text(encoding="ascii").split()
    return {"itself": top, **{f"child-{number}": int(pid) for number, pid in enumerate(below)}}


async def _figures(ways: Mapping[str, Way], to: str, *, seconds: float, turns: int, console: Console) -> list[Figure]:
    asked, good, batch = _batch(ways[ONE], to)

    async def relay(way: Way) -> float:
        frames = [[asked]] * CONNECTIONS
        return await flood_with(way.bootstrap, frames, good=good, window=1, seconds=seconds) * batch / MB

    members: dict[str, list[Member]] = {}
    for name, way in ways.items():
        with console.status(f"{name}: forming {GROUPS} groups of 10"):
            members[way.bootstrap] = await form_groups(
                way.bootstrap, f"bench-{name}", groups=GROUPS, size=10, static=False
            )

    async def heartbeats(way: Way) -> float:
        return await flood(way.bootstrap, members[way.bootstrap], connections=CONNECTIONS, window=1, seconds=seconds)

    relayed = await _in_turn(ways, relay, turns=turns, seconds=seconds, console=console, what="relaying")
    heard = await _in_turn(ways, heartbeats, turns=turns, seconds=seconds, console=console, what="heartbeats")
    costs = {name: 1_000 / each for name, each in _medians(relayed, lambda work: work.per_cpu_s).items()}
    busiest = _medians(relayed, lambda work: work.busiest)
    fetches = f"fetches of {BATCH_BYTES // 1024} KB, {CONNECTIONS} connections"
    return [
        Figure(name=fetches, unit="MB/s", values=_medians(relayed, lambda work: work.rate)),
        Figure(name="... time on a core for each MB", unit="ms", values=costs),
        Figure(
            name="... beside one process",
            unit="times",
            values={SEVERAL: costs[SEVERAL] / costs[ONE]},
            goal=Goal(at_most=1.1),
        ),
        Figure(
            name="... the busiest process's part of the work",
            unit="of 1",
            values={SEVERAL: busiest[SEVERAL]},
            goal=Goal(at_most=0.6),
        ),
        Figure(
            name=f"heartbeats, {CONNECTIONS} x 1 in flight", unit="1/s", values=_medians(heard, lambda work: work.rate)
        ),
        Figure(name="... for each second on a core", unit="1", values=_medians(heard, lambda work: work.per_cpu_s)),
    ]


def _batch(way: Way, to: str) -> tuple[bytes, bytes, int]:
    """Write a batch; return the request that fetches it, its response, and the batch's size."""
    host, _, port = way.bootstrap.rpartition(":")
    wrote, asked = (
        with_length(frame(*api, **body))
        for api, body in ((PRODUCE, produce_of(to, BATCH_BYTES)), (FETCH, fetch_of(to)))
    )
    answers = [b""]

    def has_batch() -> bool:
        """Return whether the batch was fetched, which may take a while since the topic is new."""
        answer_to(link, wrote)
        answers.append(answer_to(link, asked))
        return len(answers[-1]) >= BATCH_BYTES

    with socket.create_connection((host, int(port)), timeout=30) as link:
        until_so(has_batch, lambda: f"an answer without the batch: {answers[-1][:60].hex()}")
        answer = answer_to(link, asked)
    return asked, len(answer).to_bytes(4, "big") + answer, len(answer)


async def _in_turn(
    ways: Mapping[str, Way],
    step: Callable[[Way], Awaitable[float]],
    *,
    turns: int,
    seconds: float,
    console: Console,
    what: str,
) -> dict[str, list[Work]]:
    done: dict[str, list[Work]] = {name: [] for name in ways}
    for turn in range(turns):
        for name, way in ways.items():
            before_s = way.spent_s()
            with console.status(f"{name}: {what}, turn {turn + 1}"):
                rate = await step(way)
            spent_s = {role: after_s - before_s[role] for role, after_s in way.spent_s().items()}
            done[name].append(Work(rate=rate, answered=rate * seconds * (1 + WARMING), spent_s=spent_s))
            told = ", ".join(f"{role} {each:.2f} s" for role, each in spent_s.items())
            console.print(f"[dim]{what}, turn {turn + 1}, {name}: {rate:,.0f}/s; {told}[/]", highlight=False)
    return done


def _medians(done: Mapping[str, list[Work]], of: Callable[[Work], float]) -> dict[str, float]:
    return {name: statistics.median(map(of, works)) for name, works in done.items()}
