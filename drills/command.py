"""Runs one drill: progress, errors, the report, exit codes, Ctrl-C.

Exit codes: 0 all goals are met; 1 one is not, or the service did not recover; 2 an option cannot be used, or the drill
refuses to run; 130 interrupted. In all cases the drill's groups, topics and processes are removed, or it says what is
left.
"""

import signal
import sys
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NoReturn, Self

import msgspec
import typer
import uvloop
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

from muster import terminal
from muster.coordinator.client.commands.answer import confirmed
from muster.coordinator.client.coordinator_link import AdminError
from muster.drills.drill import Left, drilled
from muster.drills.faults import LocalFault, Stage, by_command
from muster.drills.names import Names, new_run
from muster.drills.plan import DrillError, NotOurs, Plan, ServiceFailed
from muster.drills.report.html import document
from muster.drills.report.making import Recorded, result
from muster.drills.report.result import Result
from muster.drills.report.table import print_result
from muster.drills.service.local import LocalService, Setup
from muster.drills.service.running import RunningService
from muster.events.kafka.errors import LinkError
from muster.events.log.base import LogError
from muster.events.records import EventsError
from muster.replay.commands.opening import fail, say
from muster.replay.commands.output_file import check_folder, write_page
from muster.replay.text.grammar import size_text
from muster.replay.text.printable import printable

NOT_MET: Final = 1
UNUSABLE: Final = 2
INTERRUPTED: Final = 128 + signal.SIGINT


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """The requested form of the report. `out`: the file for the page; None: no page."""

    out: Path | None
    is_json: bool


class Told:
    """Shows the progress of a drill on stderr: on a terminal in one line that changes, otherwise line by line."""

    def __init__(self, plan: Plan, names: Names) -> None:
        self._console = Console(stderr=True, highlight=False)
        self._begin_s = time.monotonic()
        self._console.print(f"[dim]muster drill {plan.fault}, run {names.run}[/]")
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TimeElapsedColumn(),
            console=self._console,
            transient=True,
        )
        self._task: TaskID | None = None

    @contextmanager
    def shown(self) -> Iterator[Self]:
        """Show the progress during the block."""
        if self._console.is_terminal:
            self._progress.start()
        try:
            yield self
        finally:
            self._stop()

    @contextmanager
    def quiet(self) -> Iterator[None]:
        """Hide the progress during the block, for example while a question is asked."""
        self._stop()
        yield
        if self._console.is_terminal:
            self._progress.start()

    def _stop(self) -> None:
        if self._console.is_terminal:  # otherwise it would print an empty line
            self._progress.stop()

    def step(self, text: str) -> None:
        """Show that a step begins."""
        if not self._console.is_terminal:
            self._line(text)
            return
        if self._task is not None:
            self._progress.remove_task(self._task)
        self._task = self._progress.add_task(printable(text), total=None)

    def progress(self, done: int, total: int) -> None:
        """Show how much of the step is done."""
        if self._task is not None:
            self._progress.update(self._task, completed=done, total=total)

    def event(self, text: str) -> None:
        """Show an action of the drill."""
        self._line(text)

    def _line(self, text: str) -> None:
        seconds = time.monotonic() - self._begin_s
        self._console.print(f"{seconds:7.1f} s  {printable(text)}", markup=False, soft_wrap=True)


def run_local(plan: Plan, setup: Setup, do: LocalFault, asked: Asked) -> None:
    """Run a drill with processes that it starts itself."""
    names = Names(new_run())

    async def run(tell: Told, left: Left) -> Recorded:
        service = LocalService(setup, names)
        try:
            tell.step(f"starting {setup.processes} processes on topic {names.topic} at {setup.kafka}")
            left.is_known = False
            await service.start()
            return await drilled(plan, names, service, lambda stage: do(stage, service), tell=tell, left=left)
        finally:
            tell.step("ending the processes, and deleting their topics")
            left.lines += await service.end()
            left.is_known = True

    _run(plan, names, run, asked)


def run_on_service(plan: Plan, service: RunningService, command: str, asked: Asked, *, yes: bool) -> None:
    """Run a drill on a running service: after a confirmation, the operator's command causes the fault."""
    names = Names(new_run())

    async def run(tell: Told, left: Left) -> Recorded:
        await service.check(plan.load.members)
        neighbours = await service.neighbours(names, plan.load)
        tell.event(neighbours)
        with tell.quiet():
            if not confirmed(f"Run {command!r} under load, and go on?", yes=yes):
                raise NotOurs(f"{neighbours} Nothing was done; say --yes to go on")

        async def do(stage: Stage) -> None:
            await by_command(stage, command)

        return await drilled(plan, names, service, do, tell=tell, left=left)

    _run(plan, names, run, asked)


def _run(plan: Plan, names: Names, run: Callable[[Told, Left], Coroutine[None, None, Recorded]], asked: Asked) -> None:
    left = Left()
    if asked.out is not None:
        check_folder(asked.out)  # before anything is started
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell lets its background jobs ignore it
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    try:
        with Told(plan, names).shown() as tell:
            recorded = uvloop.run(run(tell, left))
    except KeyboardInterrupt:
        fail(f"interrupted{_left(names, left)}", INTERRUPTED)
    except BaseExceptionGroup as group:
        _fail(_first(group), names, left)
    except (DrillError, AdminError, LinkError, LogError, EventsError) as error:
        _fail(error, names, left)
    _report(msgspec.structs.replace(result(recorded), left=tuple(left.lines)), recorded, asked)


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the first of several concurrent errors."""
    error = group.exceptions[0]
    return _first(error) if isinstance(error, BaseExceptionGroup) else error


def _fail(error: BaseException, names: Names, left: Left) -> NoReturn:
    if not isinstance(error, DrillError | AdminError | LinkError | LogError | EventsError):
        raise error
    fail(f"{error}{_left(names, left)}", NOT_MET if isinstance(error, ServiceFailed) else UNUSABLE)


def _left(names: Names, left: Left) -> str:
    """Print what a failed drill could not clean up; return the end of the error message, which sums that up."""
    for each in left.lines:
        say(f"not cleaned up: {each}")
    if not left.is_known:
        return f", also while it was cleaning up: what is left has the name {names.prefix}"
    return "; what is left is named above" if left.lines else "; nothing of the drill is left"


def _report(made: Result, recorded: Recorded, asked: Asked) -> None:
    console = terminal.stdout()
    if asked.is_json:
        console.file.write(msgspec.json.format(msgspec.json.encode(made), indent=2).decode() + "\n")
    else:
        print_result(made, console)
    if asked.out is not None:
        page = document(made, recorded, made_ms=time.time_ns() // 1_000_000)
        write_page(asked.out, page)
        typer.echo(f"{printable(str(asked.out))}: {size_text(len(page.encode()))}", err=asked.is_json)
    sys.stdout.flush()
    if not made.is_met:
        raise typer.Exit(NOT_MET)
