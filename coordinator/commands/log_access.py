"""The common parts of the commands on the event log itself: running to the end, opening, and who may be serving it."""

import asyncio
import os
import socket
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import NoReturn, TypeVar

from muster.coordinator.commands.members.answer import REFUSED, UNUSABLE, fail
from muster.coordinator.commands.members.view import printable
from muster.coordinator.not_served import way_out
from muster.events.kafka.security import BadSecurity, KafkaSecurity, security_given
from muster.events.log.base import EventLog, LogError
from muster.events.records import BrokenBatch, EventsError

T = TypeVar("T")


def run(work: Coroutine[None, None, T], command: str) -> T:
    """Run to the end; an error of the log is printed as one line."""
    try:
        return asyncio.run(work)
    except BrokenBatch as broken:
        fail(f"{broken}; what helps: {way_out(broken)}", UNUSABLE, command)
    except (LogError, EventsError) as error:
        fail(str(error), UNUSABLE, command)


def security_of(kafka_config: Sequence[str], command: str) -> KafkaSecurity:
    """Return the security of `--kafka-config` and the environment; a wrong property is printed as one line."""
    try:
        return security_given(kafka_config, os.environ)
    except BadSecurity as error:
        fail(str(error), UNUSABLE, command)


async def opened(log: EventLog, stack: AsyncExitStack) -> None:
    """Open the log until the stack is left."""
    await log.open()
    stack.push_async_callback(log.close)


def refuse_served(owners: Mapping[int, str], command: str, doing: str) -> NoReturn:
    """Refuse for the owners that may be serving partitions. `doing`: what would depose them, such as 'A repair'."""
    named = ", ".join(f"partition {partition} by {printable(owner)}" for partition, owner in owners.items())
    fail(
        f"somebody may be serving this log: {named}. {doing} would depose that owner. Stop it with SIGTERM, or give"
        " --owner-has-ended if it has crashed",
        REFUSED,
        command,
    )


def writer_name(command: str) -> str:
    """The owner that events of the command name: `host:pid (command)`."""
    return f"{socket.gethostname()}:{os.getpid()} ({command})"
