"""`python -m demo [--kafka] [--keep DIR] [--record FILE]`: options, set-up, and the exit code.

Exit codes: 0 every claim of the story held; 1 one did not, and the difference is printed; 2 the demo could not begin;
130 it was interrupted.
"""

import asyncio
import fcntl
import os
import secrets
import shutil
import signal
import sys
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path
from typing import Annotated, Final

import typer

from demo.children import ROOT
from demo.coordinator import Coordinator, Replay
from demo.members import GROUP, PARTITIONS, TOPIC, Members
from demo.scene import NotAsTold, Scene
from demo.stage import Stage
from demo.story import Story

DIRECTORY: Final = ROOT / "build" / "demo"
KAFKA_DIRECTORY: Final = DIRECTORY.with_name("demo-kafka")
"""The log of a run without a broker is kept until the next one, so a run with a broker uses another directory."""
EVENT_TOPIC: Final = "__muster_events"
NOT_AS_TOLD: Final = 1
CANNOT_BEGIN: Final = 2
INTERRUPTED: Final = 128 + signal.SIGINT


class CannotBegin(Exception):
    """Something that the demo needs is missing."""


def main(
    kafka: Annotated[bool, typer.Option("--kafka", help="Keep the event log on a real Kafka broker.")] = False,
    keep: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Keep the event log and all output here, not in build/.")
    ] = None,
    record: Annotated[Path | None, typer.Option(metavar="FILE", help="Make a picture of it, as SVG.")] = None,
) -> None:
    """Real consumers live through restarts, a crash and the death of their coordinator; then the log is asked why."""
    # One way to stop; a shell makes background jobs ignore SIGINT, so the handler is set again.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    stage = Stage(record=record is not None)
    try:
        with ExitStack() as stack:
            directory = _directory(keep, KAFKA_DIRECTORY if kafka else DIRECTORY, stack)
            log_url = _broker_log(stage, stack) if kafka else f"sqlite:///{_as_typed(directory / 'muster.db')}"
            asyncio.run(_perform(stage, directory, log_url))
        until = "" if kafka or keep is not None else " until the next `make demo`"
        _go_on(stage, log_url, is_there=not kafka or _is_foreign_topic(), until=until)
    except CannotBegin as error:
        stage.failure(f"The demo cannot begin: {error}")
        raise typer.Exit(CANNOT_BEGIN) from error
    except NotAsTold as error:
        stage.failure(str(error))
        raise typer.Exit(NOT_AS_TOLD) from error
    except KeyboardInterrupt as error:
        stage.failure("Interrupted; nothing is left running.")
        raise typer.Exit(INTERRUPTED) from error
    if record is not None:
        stage.save_picture(record, title="make demo")


def _directory(keep: Path | None, usual: Path, stack: ExitStack) -> Path:
    """The directory for the event log and all output. The default one is emptied first, any other must be new."""
    directory = usual if keep is None else keep.resolve()
    try:
        directory.parent.mkdir(parents=True, exist_ok=True)
        if keep is None:
            _lock(directory.with_suffix(".lock"), stack)
            shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir(exist_ok=True)
        if any(directory.iterdir()):
            raise CannotBegin(f"{keep} is not empty; name another directory")
    except OSError as error:
        raise CannotBegin(f"{error.filename}: {error.strerror}") from error
    return directory


def _lock(path: Path, stack: ExitStack) -> None:
    """Held until the stack closes; the system frees it if this process ends."""
    file = stack.enter_context(path.open("w"))
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise CannotBegin("another one is running here; --keep DIR gives this one a place of its own") from error


def _as_typed(path: Path) -> Path:
    """A path as typed in the checkout's folder."""
    return path.relative_to(ROOT) if path.is_relative_to(ROOT) else path


def _broker_log(stage: Stage, stack: ExitStack) -> str:
    """Start a broker; return the URL of a log on it."""
    try:
        from tests.brokers.broker import NoBroker  # noqa: PLC0415 -- its packages are installed for --kafka alone
        from tests.brokers.choice import running_broker  # noqa: PLC0415
    except ImportError as error:
        raise CannotBegin(f"{error.name} is missing; `make demo KAFKA=1` installs all that --kafka needs") from error
    stage.note("A Kafka broker starts. The first time it is downloaded, some 60 MB.")
    with stage.waiting("waiting until the broker answers"):
        try:
            broker = stack.enter_context(running_broker())
        except NoBroker as error:
            raise CannotBegin(str(error)) from error
    stage.note(f"The event log is on {broker.how}.")
    topic = f"{EVENT_TOPIC}_{secrets.token_hex(3)}" if _is_foreign_topic() else EVENT_TOPIC
    return f"kafka://{broker.bootstrap}/{topic}"


def _is_foreign_topic() -> bool:
    """True if the broker was running before, and so will be afterwards."""
    return "MUSTER_TEST_BOOTSTRAP" in os.environ


def _go_on(stage: Stage, log_url: str, *, is_there: bool, until: str) -> None:
    """Commands to try next, as typed in the checkout's folder; each works unchanged."""
    if not is_there:
        stage.go_on("The broker is gone, and the log with it. To ask more, have it in a file:", "make demo")
        return
    muster = _as_typed(Path(sys.executable).with_name("muster"))
    stage.go_on(
        f"The log is kept{until}. Ask it more, or serve it again, to consumers of your own:",
        f"{muster} replay history {GROUP} --log {log_url}",
        f"{muster} replay state {GROUP} --at 2 --log {log_url}",
        f"{muster} serve --topic {TOPIC}:{PARTITIONS} --log {log_url}",
    )


async def _perform(stage: Stage, directory: Path, log_url: str) -> None:
    """Play the story with all processes; they have ended afterwards in any case."""
    async with AsyncExitStack() as stack:
        scene = Scene(stage.waiting)
        stack.push_async_callback(scene.close)
        coordinator = Coordinator(
            scene, log_url=log_url, topic=f"{TOPIC}:{PARTITIONS}", log_file=directory / "coordinator.log"
        )
        members = Members(scene, coordinator, directory)
        replay = Replay(log_url)
        story = Story(stage, scene, coordinator, members, replay)
        try:
            await story.tell()
        except NotAsTold as error:
            step = f"step {story.step}" if story.step else "the beginning"
            said = (
                f"{error.seen}\nThe coordinator said last:\n{coordinator.log_tail()}\n"
                f"The event log says last:\n{await replay.tail('history', GROUP)}\n"
                f"What each process said is in {_as_typed(directory)}."
            )
            raise NotAsTold(f"The story did not go as told, {step}: {error.expected}", said) from error


if __name__ == "__main__":
    typer.run(main)
