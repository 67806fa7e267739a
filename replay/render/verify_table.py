"""The result of `verify`: what was read, then what was found, where, and what was expected in its place."""

from collections.abc import Iterator

from rich.console import Console, RenderableType
from rich.text import Text

from muster.replay.rebalances.wording import plural
from muster.replay.render.printable import text
from muster.replay.render.tables import grid, table
from muster.replay.verify.finding import Finding, Verified

COMPACTED_SHOWN = 10
"""The table shows so many compacted groups; JSON has all."""


def print_verified(verified: Verified, console: Console) -> None:
    """The verdict first."""
    if verified.found:
        console.print(text(f"{plural(verified.found, 'finding')} in {verified.log}", "bold red"))
    else:
        console.print(text(f"{verified.log} is well", "bold green"))
    console.print(grid(_rows(verified)))
    if not verified.findings:
        return
    console.print()
    made = table("Where", "Check", "Expected, and found")
    for finding in verified.findings:
        made.add_row(_where(finding), text(finding.check, "bold"), _told(finding))
    console.print(made)
    if verified.found > len(verified.findings):
        console.print(text(f"... and {verified.found - len(verified.findings)} more", "dim"))


def _rows(verified: Verified) -> Iterator[tuple[str, RenderableType]]:
    read = f"{plural(verified.records, 'record')} in {plural(verified.partitions, 'partition')}"
    yield "Read", text(f"{read}: {plural(verified.events, 'event')} of {plural(verified.groups, 'group')}")
    yield "Decided again", text(f"{verified.decided_again} of {verified.events}, as they were recorded")
    if verified.compacted:
        lines = [
            text(f"{each.group_id}: {plural(each.missing, 'event')} not in the log, {each.unchecked} not decided again")
            for each in verified.compacted[:COMPACTED_SHOWN]
        ]
        if len(verified.compacted) > COMPACTED_SHOWN:
            lines.append(text(f"... and {len(verified.compacted) - COMPACTED_SHOWN} more groups", "dim"))
        yield "Compacted", Text("\n").join(lines)
    if verified.strangers:
        yield "Strangers", text(f"{plural(verified.strangers, 'record')} that no owner wrote, skipped", "yellow")
    if verified.passed_over:
        yield "Repaired", text(f"{plural(verified.passed_over, 'record')} that could not be read, passed over")


def _where(finding: Finding) -> Text:
    where = text(f"partition {finding.partition}, offset {finding.offset}")
    if finding.group_id is not None:
        seq = "" if finding.seq is None else f", seq {finding.seq}"
        where.append("\n").append(text(f"{finding.group_id}{seq}", "dim"))
    return where


def _told(finding: Finding) -> Text:
    return text(finding.expected, "green").append("\n").append(text(finding.found, "red"))
