"""Starts the processes of one host, stops all gracefully, and serves their combined metrics.

The frontends are stopped first, then the owner, so that its groups move to another host only when no frontend of this
one uses it any more. If a process cannot use its arguments or files (exit code 2), all are stopped, unless it served
before and could not start again. When this process is killed, the others exit by themselves: each has a connection to
it (net/kept_sockets.py). Until then they keep their addresses, and a new supervisor waits for these
(held_addresses.py). As the first process of a container it also reaps processes that it has not started (reaping.py).
running.py decides when a process is restarted.
"""

import asyncio
import http.client
import secrets
import signal
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AsyncExitStack, ExitStack, contextmanager
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryFile
from typing import Final

import msgspec
import structlog
from prometheus_client import CollectorRegistry

from muster import DISTRIBUTION
from muster.coordinator.assembly import CannotServe
from muster.coordinator.observability.logs import configure_logs
from muster.coordinator.observability.metrics_endpoint import MetricsEndpoint
from muster.coordinator.observability.status import LinksStatus, ProcessStatus
from muster.coordinator.processes.children import LOOPBACK, children
from muster.coordinator.processes.held_addresses import hold_addresses
from muster.coordinator.processes.reaping import is_init, reap_orphans
from muster.coordinator.processes.running import RunningProcess
from muster.coordinator.processes.summed_metrics import ChildMetrics, SummedMetrics
from muster.coordinator.settings.addresses import Address, why_not_bound
from muster.coordinator.settings.settings import Settings

log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)

FRONTENDS_STOP_WITHIN_S: Final = 20.0
OWNER_STOPS_WITHIN_S: Final = 30.0
ASK_TIMEOUT_S: Final = 2.0
HEALTHZ: Final = "/healthz"
BEING_STARTED: Final = "it is being started"


async def supervise(settings: Settings, given: Sequence[str]) -> None:
    """Run all processes until SIGTERM or SIGINT. Raises CannotServe. `given`: the arguments of this process."""
    configure_logs(settings.log_level, settings.log_format)
    stopping = asyncio.Event()

    def stop(asked_by: signal.Signals) -> None:
        if not stopping.is_set():
            log.info("stopping", reason=asked_by.name)
        stopping.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop, number)
    async with AsyncExitStack() as stack:
        sockets = stack.enter_context(ExitStack())
        if not await hold_addresses(settings, stopping, sockets):
            return
        secret, inherited = stack.enter_context(secret_of_all(settings))
        running = [RunningProcess(each, inherited) for each in children(settings, given, secret=secret)]
        if is_init():
            orphans = asyncio.create_task(reap_orphans(lambda: {each.pid for each in running}), name="orphans")
            stack.callback(orphans.cancel)
        _serve_metrics(settings, running, stack)
        keeping = [asyncio.create_task(each.keep(), name=each.child.name) for each in running]
        stopped = asyncio.create_task(stopping.wait())
        log.info("processes started", owner=1, edges=settings.processes, listen=settings.listen)
        await asyncio.wait([stopped, *keeping], return_when=asyncio.FIRST_COMPLETED)
        owner, *frontends = running
        await asyncio.gather(*(each.stop(FRONTENDS_STOP_WITHIN_S) for each in frontends))
        await owner.stop(OWNER_STOPS_WITHIN_S)
        stopped.cancel()
        ended = await asyncio.gather(*keeping, return_exceptions=True)
        log.info("processes stopped")
        for error in filter(None, ended):  # stopped by an internal error
            raise error
        if any(each.is_unusable for each in running):
            raise CannotServe("a process could not start with its settings: see its last log line")


@contextmanager
def secret_of_all(settings: Settings) -> Iterator[tuple[Path, Sequence[int]]]:
    """Yield the secret file, and the descriptors that the processes inherit for it.

    A generated secret is in a file without a name, so nothing is left behind, however this process exits.
    """
    if settings.peer_secret_file is not None:
        yield settings.peer_secret_file, ()
        return
    with TemporaryFile() as file:
        file.write(secrets.token_hex(32).encode("ascii"))
        file.flush()
        yield Path(f"/dev/fd/{file.fileno()}"), (file.fileno(),)


def _serve_metrics(settings: Settings, running: Sequence[RunningProcess], stack: AsyncExitStack) -> None:
    if settings.metrics is None:
        return
    registry = CollectorRegistry()
    registry.register(SummedMetrics(lambda: _metrics_of(running), [each.child.name for each in running]))
    at = Address(settings.metrics)
    try:
        endpoint = MetricsEndpoint(
            at.host,
            at.port,
            registry,
            not_ready=lambda: _complaints(running, "/readyz"),
            not_well=lambda: _complaints(running, HEALTHZ),
            status=lambda: status_of_all(settings, running),
        )
    except OSError as error:
        raise CannotServe(f"{settings.name_of('metrics')} {at}: {why_not_bound(error)}") from error
    stack.callback(endpoint.close)
    log.info("metrics", listen=f"{at.host}:{endpoint.port}")


def _metrics_of(running: Sequence[RunningProcess]) -> Iterator[ChildMetrics]:
    for each in running:
        starts = each.starts
        code, text = _ask(each, "/metrics")
        if code == 200 and starts == each.starts:
            yield ChildMetrics(each.child.name, starts, text)


def _complaints(running: Sequence[RunningProcess], path: str) -> str | None:
    """Return which processes are not ready, or not well, and why; None if all are."""
    told = _why_not_well if path == HEALTHZ else str
    asked = [(each.child.name, *_ask(each, path)) for each in running]
    return _joined((name, None if code == 200 else told(text.strip())) for name, code, text in asked)


def _why_not_well(said: str) -> str | None:
    """Return what is wrong with a process that reports a problem or does not answer.

    A process that is being started is not ready, but it is not unhealthy: restarting everything would only start it
    again.
    """
    return None if said == BEING_STARTED else said


def _joined(complaints: Iterable[tuple[str, str | None]]) -> str | None:
    return "; ".join(f"{name}: {text}" for name, text in complaints if text is not None) or None


def status_of_all(settings: Settings, running: Sequence[RunningProcess]) -> bytes:
    """Return the owner's status, with the problems of all processes, and the links of the worst-connected frontend.

    While the owner does not answer, the rest is returned without it.
    """
    told = {each.child.name: _status(each) for each in running}
    statuses = [each for each in told.values() if isinstance(each, ProcessStatus)]
    owner = statuses[0] if statuses and statuses[0].node_id == settings.node_id else _unanswered(settings)
    status = msgspec.structs.replace(
        owner,
        not_ready=_joined((name, each if isinstance(each, str) else each.not_ready) for name, each in told.items()),
        not_well=_joined(
            (name, _why_not_well(each) if isinstance(each, str) else each.not_well) for name, each in told.items()
        ),
        links=max((each.links for each in statuses), key=_badness, default=owner.links),
    )
    return msgspec.json.encode(status)


def _badness(links: LinksStatus) -> tuple[int, int, int]:
    return links.no_owner_reached_ms, sum(not each.reached for each in links.to), len(links.to)


def _status(process: RunningProcess) -> ProcessStatus | str:
    """Return the status of a process, or why it returns none."""
    code, text = _ask(process, "/status")
    return msgspec.json.decode(text, type=ProcessStatus) if code == 200 else text.strip()


def _unanswered(settings: Settings) -> ProcessStatus:
    """Return a status of the owner with what is known while it does not answer."""
    return ProcessStatus(
        version=version(DISTRIBUTION),
        mode="sidecar",
        node_id=settings.node_id,
        listen=str(settings.advertise or settings.listen),
        log=settings.log,
        upstream=settings.upstream,
        uptime_ms=0,
        not_ready=None,
        not_well=None,
    )


def _ask(process: RunningProcess, path: str) -> tuple[int, str]:
    """Query a process's own endpoint; 503 and the reason if it does not answer."""
    port = process.sockets.metrics_port
    if port is None:
        return 503, BEING_STARTED
    try:
        with urllib.request.urlopen(f"http://{LOOPBACK}:{port}{path}", timeout=ASK_TIMEOUT_S) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
    except (OSError, http.client.HTTPException) as error:
        return 503, f"it does not answer: {error}"
