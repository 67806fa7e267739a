"""The cost of a hostile request to others: one connection sends small requests, another a request with many entries.

The hostile request is built beforehand and sent from a thread that then only waits, so the measured wait is the
server's. A server that is killed by a request is reported as such, and restarted for the next one.
"""

import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
import uvloop
from kio.index import load_request_schema
from rich.console import Console

from benchmarks.measuring.groups import links_to
from benchmarks.results import KAFKA, STANDALONE, Figure, Goal, Results
from benchmarks.sidecar import running_sidecar
from muster.coordinator.wire.registry import APIS
from tests.brokers.broker import MEASURED_JVM_OPTIONS
from tests.brokers.choice import running_broker
from tests.coordinator.hostile import as_many_as_allowed, exactly, exchange, four_megabytes
from tests.coordinator.kio_client import frame, with_length
from tests.coordinator.wire.smallest import Path as ArrayPath
from tests.coordinator.wire.smallest import arrays_of, entry_bytes
from tests.muster_process import running_muster, sqlite_log

COLUMNS = {KAFKA: STANDALONE[KAFKA], "sqlite": STANDALONE["sqlite"], "sidecar": "through Muster"}
CONFIG = {"group.initial.rebalance.delay.ms": "50"}
WAIT_MS_MAX = 250
PING_EVERY_S = 0.02
QUIET_S = 0.5
"""How long pings continue after the response, since remaining work would also delay others."""
GIVES_UP_AFTER_S = 30
WATCHED_S_MAX = 60
ANSWERS_WITHIN_S = 10
WARMING_PINGS = 200
PING = with_length(frame("ApiVersions", 3, client_software_name="bench", client_software_version="1"))


class Kind(msgspec.Struct, frozen=True, kw_only=True):
    """A kind of request, and its array with the most entries per byte."""

    api: str
    key: int
    version: int
    path: ArrayPath

    def __str__(self) -> str:
        return f"{self.api} v{self.version}, {'.'.join(self.path)}"


class Served(msgspec.Struct, frozen=True, kw_only=True):
    """A running server; `broker` is the one behind a sidecar."""

    bootstrap: str
    how: str = ""
    broker: str | None = None


class Cost(msgspec.Struct, frozen=True, kw_only=True):
    """The cost of one request to others: their longest wait in ms, or what happened to the server."""

    wait_ms: float = 0.0
    ended: str = ""


Start = Callable[[], AbstractContextManager[Served]]
MakeRequest = Callable[[int, int, ArrayPath], bytes]
SIZES: Mapping[str, MakeRequest] = {"4 MB": four_megabytes, "as many entries as are allowed": as_many_as_allowed}


def kinds() -> list[Kind]:
    """The last version of each API that has an array, others that a sidecar handles, and the one that killed Kafka."""
    last = [(api.name, key, api.versions[-1]) for key, api in APIS.items()]
    others = [("OffsetFetch", 9, 8), ("TxnOffsetCommit", 28, 5)]
    found = []
    for name, key, version in sorted([*last, *others], key=lambda each: each[1:]):
        paths = list(arrays_of(load_request_schema(key, version)))
        if paths:
            smallest = min(paths, key=lambda path: entry_bytes(key, version, path))
            found.append(Kind(api=name, key=key, version=version, path=smallest))
    return found


def measure(sends: int, console: Console) -> Results:
    """Measure all kinds in both sizes, several times each, on one server after another; the longest wait counts."""
    starts: Mapping[str, Start] = {KAFKA: _kafka, "sqlite": _standalone, "sidecar": _sidecar}
    costs: dict[str, dict[str, Cost]] = {}
    kafka = ""
    for server, start in starts.items():
        with ExitStack() as stack:
            sending = Sending(start, stack)
            kafka = kafka or sending.served.how
            costs[server] = _costs(server, sending, sends, console)
    return Results(
        title="What a hostile request costs the others, one run, one machine",
        columns=COLUMNS,
        figures=_figures(costs),
        kafka=kafka,
    )


def _costs(server: str, sending: "Sending", sends: int, console: Console) -> dict[str, Cost]:
    """The cost of each request: the worst of several attempts; the worst of all is killing the server, which ends the
    attempts.
    """
    found: dict[str, Cost] = {}
    for size, make in SIZES.items():
        for kind in kinds():
            content = make(kind.key, kind.version, kind.path)
            what = f"{size}: {kind}"
            with console.status(f"{server}: {what}"):
                worst = sending.cost_of(content)
                for _ in range(sends - 1):
                    if not worst.ended:
                        worst = max(worst, sending.cost_of(content), key=lambda cost: (cost.ended, cost.wait_ms))
            found[what] = worst
            console.print(f"[dim]{server}: {what}: {worst.ended or f'{worst.wait_ms:,.0f} ms'}[/]", highlight=False)
    return found


def _figures(costs: Mapping[str, Mapping[str, Cost]]) -> list[Figure]:
    """First the worst of each size, then every kind."""
    worst, each = [], []
    for size in SIZES:
        whats = [what for what in costs[KAFKA] if what.startswith(f"{size}: ")]
        of_size = [_figure(what, costs) for what in whats]
        values = {server: max(figure.values.get(server, 0.0) for figure in of_size) for server in costs}
        notes = {server: told for server in costs if (told := _without_figure(server, of_size))}
        name = f"what a hostile request costs the others, the worst of {len(whats)} kinds, {size}"
        worst.append(Figure(name=name, unit="ms", values=values, notes=notes, goal=Goal(at_most=WAIT_MS_MAX)))
        each += of_size
    return worst + each


def _without_figure(server: str, figures: Sequence[Figure]) -> str:
    """The end of the server as text, in place of a figure."""
    of_server = [figure for figure in figures if server in figure.notes]
    return "; ".join(f"{figure.name.partition(': ')[2]}: {figure.notes[server]}" for figure in of_server)


def _figure(what: str, costs: Mapping[str, Mapping[str, Cost]]) -> Figure:
    values = {server: each[what].wait_ms for server, each in costs.items() if not each[what].ended}
    notes = {server: each[what].ended for server, each in costs.items() if each[what].ended}
    return Figure(name=what, unit="ms", values=values, notes=notes, goal=Goal(at_most=WAIT_MS_MAX))


# ---- the two connections ---------------------------------------------------------------------------


class Sending:
    """Sends hostile requests to one server, which is restarted if a request kills it."""

    def __init__(self, start: Start, stack: ExitStack) -> None:
        self._start = start
        self._running = stack.enter_context(ExitStack())
        self._begin()

    def _begin(self) -> None:
        self._running.close()
        self.served = self._running.enter_context(self._start())
        for link in uvloop.run(links_to(self.served.bootstrap, 1)):
            link.close()

    def cost_of(self, content: bytes) -> Cost:
        """Send one, and ping meanwhile."""
        try:
            wait_ms, is_answered = longest_wait_ms(self.served.bootstrap, content)
        except TimeoutError:
            cost = Cost(ended=f"no answer for {GIVES_UP_AFTER_S} s")
        except OSError:
            cost = Cost(ended=self._what_ended())
        else:
            if not _answers(self.served.bootstrap) or not _answers(self.served.broker or self.served.bootstrap):
                cost = Cost(ended=self._what_ended())
            elif is_answered:
                return Cost(wait_ms=wait_ms)
            else:  # restart it, since it is still busy, which would count for the next request
                cost = Cost(wait_ms=wait_ms)
        self._begin()
        return cost

    def _what_ended(self) -> str:
        if self.served.broker is not None and not _answers(self.served.broker):
            return "its broker was ended"
        return "others were cut off" if _answers(self.served.bootstrap) else "ended"


def longest_wait_ms(bootstrap: str, content: bytes) -> tuple[float, bool]:
    """The longest wait of a connection that sends ApiVersions every 20 ms meanwhile; and whether the hostile request
    was answered, or refused, within a minute. Raises OSError.
    """
    host, _, port = bootstrap.rpartition(":")
    pool = ThreadPoolExecutor(1)
    try:
        with socket.create_connection((host, int(port)), timeout=GIVES_UP_AFTER_S) as link:
            link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for _ in range(WARMING_PINGS):
                _ping(link)
            answer = pool.submit(exchange, int(port), content)
            wait_ms = max(_waits_ms(link, answer))
            return wait_ms, answer.done() and answer.exception() is None
    finally:
        pool.shutdown(wait=False)  # the thread ends when the server does, if not earlier


def _waits_ms(link: socket.socket, answer: Future[bytes]) -> Iterator[float]:
    answered_at: float | None = None
    gives_up_at = time.perf_counter() + WATCHED_S_MAX
    while True:
        began = time.perf_counter()
        _ping(link)
        ended = time.perf_counter()
        yield (ended - began) * 1_000
        if answered_at is None and answer.done():
            answered_at = ended
        if ended > gives_up_at or (answered_at is not None and ended - answered_at > QUIET_S):
            return
        time.sleep(max(0.0, began + PING_EVERY_S - ended))


def _ping(link: socket.socket) -> None:
    link.sendall(PING)
    length = exactly(link, 4)
    if not length or not exactly(link, int.from_bytes(length, "big")):
        raise ConnectionError("hung up on")


def _answers(bootstrap: str) -> bool:
    host, _, port = bootstrap.rpartition(":")
    try:
        with socket.create_connection((host, int(port)), timeout=ANSWERS_WITHIN_S) as link:
            _ping(link)
    except OSError:
        return False
    return True


# ---- the servers -----------------------------------------------------------------------------------


@contextmanager
def _kafka() -> Iterator[Served]:
    with running_broker(settings=CONFIG, how="process", jvm_options=MEASURED_JVM_OPTIONS) as broker:
        yield Served(bootstrap=broker.bootstrap, how=broker.how)


@contextmanager
def _standalone() -> Iterator[Served]:
    with (
        TemporaryDirectory(prefix="muster-bench-") as directory,
        running_muster(log=sqlite_log(Path(directory)), config=CONFIG) as muster,
    ):
        yield Served(bootstrap=muster.bootstrap)


@contextmanager
def _sidecar() -> Iterator[Served]:
    with (
        running_broker(how="process", jvm_options=MEASURED_JVM_OPTIONS) as broker,
        running_sidecar(broker.bootstrap, CONFIG) as muster,
    ):
        yield Served(bootstrap=muster.bootstrap, broker=broker.bootstrap)
