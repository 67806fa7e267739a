"""The common parts of commands: options, running one request, and printing its result or error.

Exit codes: 0 done; 1 refused, with a line for each member's reason; 2 wrong use, or no such coordinator. Changes that
were made are printed to stdout, refusals to stderr; with JSON, stdout has both.
"""

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from enum import StrEnum, unique
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import typer
from rich.console import Console

from muster import terminal
from muster.coordinator.client.commands.view import print_json, printable, results_json
from muster.events.kafka.security import BadSecurity, KafkaSecurity, security_given

if TYPE_CHECKING:
    from muster.coordinator.client.group_admin import GroupAdmin, MemberResult

from typing import Annotated

from muster.durations import duration

T = TypeVar("T")

MEMBERS_COMMAND = "muster members"
HERE = "127.0.0.1:9092"
REFUSED = 1
UNUSABLE = 2


@unique
class AnswerFormat(StrEnum):
    TABLE = "table"
    JSON = "json"


GroupArgument = Annotated[str, typer.Argument(metavar="GROUP", help="The group id.")]
InstancesArgument = Annotated[list[str], typer.Argument(metavar="INSTANCE", help="Instance ids (group.instance.id).")]
NamesArgument = Annotated[list[str], typer.Argument(metavar="ID", help="Instance ids, or member ids.")]
BootstrapOption = Annotated[
    str,
    typer.Option(
        "--bootstrap",
        metavar="HOST:PORT",
        envvar="MUSTER_BOOTSTRAP",
        help="The address of a coordinator, or of any broker, HOST:PORT.",
    ),
]
FormatOption = Annotated[AnswerFormat, typer.Option("--format", help="A table for people, json for programs.")]
TimeoutOption = Annotated[
    int | None,
    typer.Option(
        "--timeout",
        metavar="DURATION",
        parser=duration,
        help="How long the group waits for them: 30s, 10m, 1h30m. It is stored as a config of the group; without "
        "it, the stored value applies (5m by default).",
    ),
]


def confirmed(question: str, *, yes: bool) -> bool:
    """Return whether the user agrees: by `--yes`, or by answering the question on a terminal."""
    return yes or (sys.stdin.isatty() and sys.stdout.isatty() and typer.confirm(question))


def security_of(kafka_config: Sequence[str] | None, command: str) -> KafkaSecurity:
    """Return the security from `--kafka-config` and the environment; print an invalid property as one line."""
    try:
        return security_given(kafka_config, os.environ)
    except BadSecurity as error:
        fail(str(error), UNUSABLE, command)


def ask(
    bootstrap: str,
    kafka_config: Sequence[str] | None,
    question: Callable[["GroupAdmin"], Awaitable[T]],
    *,
    command: str = MEMBERS_COMMAND,
) -> T:
    """Send a request and return its result; any error ends the command with one line.

    The client is imported here, since the import would slow down the start of other commands.
    """
    from muster.coordinator.client.coordinator_link import (  # noqa: PLC0415
        AdminError,
        AuthenticationFailed,
        NoCoordinator,
        NotMuster,
        NotReady,
        Refused,
        UnknownGroup,
    )
    from muster.coordinator.client.group_admin import GroupAdmin  # noqa: PLC0415

    async def ask(security: KafkaSecurity) -> T:
        async with GroupAdmin(bootstrap, security=security) as admin:
            try:
                return await question(admin)
            except UnknownGroup as unknown:
                fail(str(unknown).rstrip(".") + await admin.groups_like(unknown.group_id), REFUSED, command)

    try:
        return asyncio.run(ask(security_of(kafka_config, command)))
    except Refused as error:
        fail(str(error), REFUSED, command)
    except NotReady as error:
        fail(str(error), UNUSABLE, command)
    except NoCoordinator as error:
        fail(
            f"{error} (--bootstrap or MUSTER_BOOTSTRAP; --kafka-config if the listener needs TLS or SASL)",
            UNUSABLE,
            command,
        )
    except NotMuster as error:
        fail(f"{error} (--bootstrap, MUSTER_BOOTSTRAP)", UNUSABLE, command)
    except AuthenticationFailed as error:
        fail(f"{error} (--kafka-config)", UNUSABLE, command)
    except AdminError as error:
        fail(str(error), UNUSABLE, command)


# ---- output --------------------------------------------------------------------------------------


def show(content: Mapping[str, Any], form: AnswerFormat, print_table: Callable[[Console], None]) -> None:
    console = terminal.stdout()
    if form is AnswerFormat.JSON:
        print_json(content, console)
    else:
        print_table(console)


def show_done(group: str, lines: Sequence[str], form: AnswerFormat) -> None:
    """Print a line for each thing that was done."""
    show({"group_id": group, "done": True}, form, lambda _: typer.echo("\n".join(f"{group}: {line}" for line in lines)))


def show_results(group: str, results: Sequence["MemberResult"], done: str, form: AnswerFormat) -> None:
    """Print a line for each member: successes to stdout, refusals with their reasons to stderr."""

    def lines(_console: Console) -> None:
        for each in results:
            if each.done:
                typer.echo(f"{each.member}: {done}")

    show(results_json(group, results), form, lines)
    for each in results:
        if each.reason is not None:
            complain(f"{each.member}: {each.reason}")
    if not all(each.done for each in results):
        raise typer.Exit(REFUSED)


def fail(message: str, code: int, command: str = MEMBERS_COMMAND) -> NoReturn:
    complain(message, command)
    raise typer.Exit(code)


def complain(message: str, command: str = MEMBERS_COMMAND) -> None:
    """Print a line to stderr, with the name of the command."""
    typer.echo(f"{command}: {printable(message)}", err=True)
