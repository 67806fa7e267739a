"""`muster status`: ask each process, show what they say, choose the exit code."""

from collections.abc import Sequence
from typing import Any, Final

import msgspec
import typer

from muster.coordinator.commands.members.answer import UNUSABLE, AnswerFormat, fail, show
from muster.coordinator.commands.status_asking import Asked, Unanswered, ask_all
from muster.coordinator.commands.status_findings import Finding, Severity, findings
from muster.coordinator.commands.status_table import print_status

COMMAND: Final = "muster status"
SOMETHING_IS_WRONG: Final = 1


def show_status(addresses: Sequence[str], *, timeout_s: float, form: AnswerFormat) -> None:
    """Ask, show, and exit with the code."""
    named = [each.strip() for address in addresses for each in address.split(",") if each.strip()]
    try:
        asked = ask_all(named, timeout_s)
    except ValueError as error:
        fail(str(error), UNUSABLE, COMMAND)
    found = findings(asked)
    show(_json(asked, found), form, lambda console: print_status(asked, found, console))
    if any(each.severity is Severity.UNANSWERED for each in found):
        raise typer.Exit(UNUSABLE)
    if any(each.severity is Severity.PROBLEM for each in found):
        raise typer.Exit(SOMETHING_IS_WRONG)


def _json(asked: Sequence[Asked], found: Sequence[Finding]) -> dict[str, Any]:
    processes = [
        {
            "address": each.address,
            "answered": not isinstance(each.answer, Unanswered),
            "status": None if isinstance(each.answer, Unanswered) else msgspec.to_builtins(each.answer),
        }
        for each in asked
    ]
    return {"findings": msgspec.to_builtins(found), "processes": processes}
