"""Starts the processes of one host, starts again what has ended, and stops all in good order.

What belongs here: processes, from start to end. What it must not know: what they do.

The edges are stopped first, then the owner: so its groups go to another host while nobody asks it any more. A process
that ends by itself is started again, after growing pauses; one that cannot use what it was given (exit code 2) ends
all, while none of them has served yet.
"""

import asyncio
import ctypes
import os
import secrets
import signal
import socket
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack, ExitStack, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import structlog
from prometheus_client import CollectorRegistry

from muster.coordinator.assembly import CannotServe
from muster.coordinator.observability.logs import configure_logs
from muster.coordinator.observability.metrics_endpoint import MetricsEndpoint
from muster.coordinator.processes.children import LOOPBACK, Child, children
from muster.coordinator.processes.summed_metrics import SummedMetrics
from muster.coordinator.settings.addresses import Address, why_not_bound
from muster.coordinator.settings.settings import Settings

log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)

UNUSABLE: Final = 2
"""The exit code of a process that cannot use what it was given."""
RESTART_PAUSE_S: Final = 1.0
RESTART_PAUSE_MAX_S: Final = 30.0
SERVED_LONG_S: Final = 60.0
"""A process that has run for so long is started again without a longer pause."""
EDGES_STOP_WITHIN_S: Final = 20.0
OWNER_STOPS_WITHIN_S: Final = 30.0
ASK_TIMEOUT_S: Final = 2.0
PR_SET_PDEATHSIG: Final = 1


async def supervise(settings: Settings, given: Sequence[str]) -> None:
    """Run all processes until SIGTERM or SIGINT. Raises CannotServe. `given`: the arguments of this process."""
    configure_logs(settings.log_level, settings.log_format)
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    async with AsyncExitStack() as stack:
        refuse_taken(settings)
        directory = Path(stack.enter_context(TemporaryDirectory(prefix="muster-")))
        ports = _free_ports(settings.processes + 1)
        plan = list(children(settings, given, secret=_secret(settings, directory), metrics_ports=ports))
        _serve_metrics(settings, plan, stack)
        running = [_Running(each) for each in plan]
        keeping = [asyncio.create_task(each.keep(), name=each.child.name) for each in running]
        stopped = asyncio.create_task(stopping.wait())
        log.info("processes started", owner=1, edges=settings.processes, listen=settings.listen)
        await asyncio.wait([stopped, *keeping], return_when=asyncio.FIRST_COMPLETED)
        owner, *edges = running
        await asyncio.gather(*(each.stop(EDGES_STOP_WITHIN_S) for each in edges))
        await owner.stop(OWNER_STOPS_WITHIN_S)
        stopped.cancel()
        await asyncio.gather(stopped, *keeping, return_exceptions=True)
        log.info("processes stopped")
        if any(each.is_unusable for each in running):
            raise CannotServe("a process could not use what it was given: its line says what")


def refuse_taken(settings: Settings) -> None:
    """Raise CannotServe if somebody else listens at the address: the edges would share it with them."""
    at = Address(settings.listen)
    try:
        socket.create_server((at.host, at.port)).close()
    except OSError as error:
        raise CannotServe(f"{settings.name_of('listen')} {at}: {why_not_bound(error)}") from error


def _secret(settings: Settings, directory: Path) -> Path:
    if settings.peer_secret_file is not None:
        return settings.peer_secret_file
    file = directory / "peer.secret"
    file.touch(mode=0o600)
    file.write_text(secrets.token_hex(32), encoding="ascii")
    return file


def _free_ports(count: int) -> list[int]:
    """Return ports that nobody has now, for the processes' own metrics."""
    with ExitStack() as held:
        found = [held.enter_context(socket.create_server((LOOPBACK, 0))) for _ in range(count)]
        return [each.getsockname()[1] for each in found]


def _serve_metrics(settings: Settings, plan: Sequence[Child], stack: AsyncExitStack) -> None:
    if settings.metrics is None:
        return
    registry = CollectorRegistry()
    registry.register(SummedMetrics(lambda: _texts(plan)))
    at = Address(settings.metrics)
    try:
        endpoint = MetricsEndpoint(
            at.host,
            at.port,
            registry,
            not_ready=lambda: _complaints(plan, "/readyz"),
            not_well=lambda: _complaints(plan, "/healthz"),
            status=lambda: _status_of_owner(plan),
        )
    except OSError as error:
        raise CannotServe(f"{settings.name_of('metrics')} {at}: {why_not_bound(error)}") from error
    stack.callback(endpoint.close)
    log.info("metrics", listen=f"{at.host}:{endpoint.port}")


def _texts(plan: Sequence[Child]) -> Iterator[str]:
    for child in plan:
        code, text = _ask(child, "/metrics")
        if code == 200:
            yield text


def _complaints(plan: Sequence[Child], path: str) -> str | None:
    """Tell which processes are not ready, or not well, and why; None if all are."""
    asked = [(child.name, *_ask(child, path)) for child in plan]
    return "; ".join(f"{name}: {text.strip()}" for name, code, text in asked if code != 200) or None


def _status_of_owner(plan: Sequence[Child]) -> bytes:
    return _ask(plan[0], "/status")[1].encode()


def _ask(child: Child, path: str) -> tuple[int, str]:
    """Ask a process's own endpoint; 503 and why, if it does not answer."""
    url = f"http://{LOOPBACK}:{child.metrics_port}{path}"
    try:
        with urllib.request.urlopen(url, timeout=ASK_TIMEOUT_S) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
    except OSError as error:
        return 503, f"it does not answer: {error}"


class _Running:
    """One process, which is started again when it ends."""

    def __init__(self, child: Child) -> None:
        self.child = child
        self.is_unusable = False
        self._process: asyncio.subprocess.Process | None = None
        self._stopping = asyncio.Event()

    async def keep(self) -> None:
        """Keep it running, until it is stopped, or cannot be."""
        pause_s = RESTART_PAUSE_S
        has_served = False
        while not self._stopping.is_set():
            began_s = time.monotonic()
            command = (sys.executable, "-m", "muster", *self.child.arguments)
            process = self._process = await asyncio.create_subprocess_exec(*command, preexec_fn=_end_with_us)
            code = await process.wait()
            if self._stopping.is_set():
                return
            ran_s = time.monotonic() - began_s
            has_served |= ran_s >= SERVED_LONG_S
            if code == UNUSABLE and not has_served:
                self.is_unusable = True
                return
            pause_s = RESTART_PAUSE_S if ran_s >= SERVED_LONG_S else min(2 * pause_s, RESTART_PAUSE_MAX_S)
            log.warning("a process has ended, starting it again", process=self.child.name, code=code, pause_s=pause_s)
            with suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await self._stopping.wait()

    async def stop(self, within_s: float) -> None:
        """Stop it in good order; kill it if it has not ended in time."""
        self._stopping.set()
        process = self._process
        if process is None or process.returncode is not None:
            return
        process.terminate()
        try:
            async with asyncio.timeout(within_s):
                await process.wait()
        except TimeoutError:
            log.warning("a process has not stopped in time, and is killed", process=self.child.name)
            process.kill()
            await process.wait()


def _end_with_us() -> None:
    """Have the kernel stop a process whose supervisor was killed; Linux alone does that."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() == 1:
            os.kill(os.getpid(), signal.SIGTERM)
