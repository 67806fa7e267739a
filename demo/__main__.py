"""`python -m demo [--kafka] [--keep DIR] [--record FILE]`. A skin: options, set-up, and the exit code.

Exit codes: 0 the story went as told; 1 it did not, and what was seen instead is said; 2 it could not begin.
"""

import asyncio
import os
import secrets
import signal
import tempfile
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path
from typing import Annotated, Final

import typer

from demo.coordinator import Coordinator, Replay
from demo.members import PARTITIONS, TOPIC, Members
from demo.scene import NotAsTold, Scene
from demo.stage import Stage
from demo.story import Story

EVENT_TOPIC: Final = "__muster_events"
NOT_AS_TOLD: Final = 1
CANNOT_BEGIN: Final = 2


class CannotBegin(Exception):
    """Something that the demo needs is not there."""


def main(
    kafka: Annotated[bool, typer.Option("--kafka", help="Keep the event log on a real Kafka broker.")] = False,
    keep: Annotated[Path | None, typer.Option(metavar="DIR", help="Keep the event log and all output here.")] = None,
    record: Annotated[Path | None, typer.Option(metavar="FILE", help="Make a picture of it, as SVG.")] = None,
) -> None:
    """Real consumers live through restarts, a crash and the death of their coordinator; then the log is asked why."""
    stage = Stage(record=record is not None)
    try:
        with ExitStack() as stack:
            directory = _directory(keep, stack)
            log_url = _broker_log(stage, stack) if kafka else f"sqlite:///{directory / 'muster.db'}"
            asyncio.run(_perform(stage, directory, log_url))
    except CannotBegin as error:
        stage.failure(f"The demo cannot begin: {error}")
        raise typer.Exit(CANNOT_BEGIN) from error
    except NotAsTold as error:
        stage.failure(str(error))
        raise typer.Exit(NOT_AS_TOLD) from error
    except asyncio.CancelledError as error:
        raise typer.Exit(128 + signal.SIGTERM) from error
    if record is not None:
        stage.save_picture(record, title="make demo")


def _directory(keep: Path | None, stack: ExitStack) -> Path:
    if keep is None:
        return Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="muster-demo-")))
    keep.mkdir(parents=True, exist_ok=True)
    if (keep / "muster.db").exists():
        raise CannotBegin(f"{keep} has the event log of another run; name another directory")
    return keep.resolve()


def _broker_log(stage: Stage, stack: ExitStack) -> str:
    """Start a broker; the URL of a log on it."""
    try:
        from tests.brokers import NoBroker, running_broker  # noqa: PLC0415 -- its packages are installed for --kafka alone
    except ImportError as error:
        raise CannotBegin(f"{error.name} is missing; `make demo KAFKA=1` installs all that --kafka needs") from error
    with stage.waiting("waiting until a Kafka broker has started"):
        try:
            broker = stack.enter_context(running_broker())
        except NoBroker as error:
            raise CannotBegin(str(error)) from error
    stage.title("The event log is on a real broker.", broker.how)
    somebody_elses = "MUSTER_TEST_BOOTSTRAP" in os.environ
    topic = f"{EVENT_TOPIC}_{secrets.token_hex(3)}" if somebody_elses else EVENT_TOPIC
    return f"kafka://{broker.bootstrap}/{topic}"


async def _perform(stage: Stage, directory: Path, log_url: str) -> None:
    """The story, with everybody in it; all of them are gone afterwards, however it ends."""
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    async with AsyncExitStack() as stack:
        files = stack.enter_context(ExitStack())
        scene = Scene(stage.waiting)
        stack.push_async_callback(scene.close)
        topic = f"{TOPIC}:{PARTITIONS}"
        coordinator = Coordinator(scene, log_url=log_url, topic=topic, log_file=directory / "coordinator.log")
        members = Members(scene, coordinator, directory, files)
        story = Story(stage, scene, coordinator, members, Replay(log_url))
        try:
            stage.title(
                "Muster coordinates a consumer group of 4 members on 12 partitions.",
                f"$ muster serve --topic {topic} --log {log_url}",
            )
            await coordinator.start()
            await story.tell()
        except NotAsTold as error:
            step = f"step {story.step}" if story.step else "the beginning"
            said = f"{error.seen}\nThe coordinator said last:\n{coordinator.log_tail()}"
            raise NotAsTold(f"The story did not go as told, {step}: {error.expected}", said) from error


if __name__ == "__main__":
    typer.run(main)
