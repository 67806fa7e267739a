"""The result of `verify`: what was read, then each finding: where it is, what was expected, what was found, what to
do.
"""

from collections.abc import Iterator

from rich.console import Console, RenderableType
from rich.text import Text

from muster.replay.render import markdown
from muster.replay.render.tables import grid, table
from muster.replay.render.time_words import when_text
from muster.replay.text.grammar import plural
from muster.replay.text.printable import printable, text
from muster.replay.verify.finding import LogFinding, Verified

COMPACTED_SHOWN = 10
"""The number of compacted groups in the table; JSON has more."""


def print_verified(verified: Verified, console: Console) -> None:
    """Print the verdict, then the details."""
    console.print(text(_verdict(verified), "bold red" if verified.found or verified.unread else "bold green"))
    console.print(grid(_rows(verified)))
    if not verified.findings:
        return
    console.print()
    made = table("Where", "Check", "Expected, and found")
    for finding in verified.findings:
        made.add_row(
            Text("\n").join(map(text, _where(finding))),
            text(finding.check, "bold"),
            _told(finding.expected, finding.found),
        )
    console.print(made)
    if verified.found > len(verified.findings):
        console.print(text(_more(verified), "dim"))


def verified_in_markdown(verified: Verified) -> str:
    """Return a heading, what was read, and a row for each finding."""
    told = f"## {markdown.escaped(_verdict(verified))}\n\n{markdown.facts(_rows(verified))}"
    if not verified.findings:
        return told
    rows = [
        tuple(map(markdown.escaped, (", ".join(_where(each)), each.check, each.expected, each.found)))
        for each in verified.findings
    ]
    told += "\n" + markdown.table(("Where", "Check", "Expected", "Found"), rows)
    return told + (f"\n{markdown.escaped(_more(verified))}\n" if verified.found > len(verified.findings) else "")


def _verdict(verified: Verified) -> str:
    if verified.found:
        return f"{plural(verified.found, 'finding')} in {verified.log}"
    if verified.unread:
        return f"No finding in the readable part of {verified.log}; the rest cannot be read"
    if not verified.records:
        return f"{verified.log} is empty"
    if verified.window is not None or verified.pattern is not None:
        return f"The checked part of {verified.log} is consistent"
    return f"{verified.log} is consistent"


def _more(verified: Verified) -> str:
    return f"... and {verified.found - len(verified.findings)} more findings that are not listed"


def _rows(verified: Verified) -> Iterator[tuple[str, RenderableType]]:
    read = f"{plural(verified.records, 'record')} in {plural(verified.partitions, 'partition')}"
    checked = f"{plural(verified.events, 'event')} of {plural(verified.groups, 'group')}"
    if verified.window is None and verified.pattern is None:
        yield "Read", text(f"{read}: {checked}")
    else:
        yield "Read", text(read)
        yield "Checked", text(f"{checked}{_part(verified)}")
    yield "Recomputed", text(f"{verified.decided_again} of {verified.events} events, with the recorded result")
    if verified.compacted_groups:
        yield "Compacted", _compacted(verified)
    if verified.strangers:
        yield "Foreign", text(f"{plural(verified.strangers, 'record')} that no owner wrote, skipped", "yellow")
    if verified.passed_over:
        yield "Repaired", text(f"{plural(verified.passed_over, 'record')} that could not be read, skipped")
    if verified.unread:
        yield "Not read", Text("\n").join(text(each, "red") for each in verified.unread)
    if verified.advice:
        yield "What to do", Text("\n").join(_told(f"{check}: ", advice) for check, advice in verified.advice.items())


def _part(verified: Verified) -> str:
    """Describe the part of the log that was checked, and the events before it."""
    whose = "" if verified.pattern is None else f" that match '{verified.pattern}'"
    folded = f"; {plural(verified.folded, 'event')} before that checked but not reported" if verified.folded else ""
    return f"{whose}{when_text(verified.window)}{folded}"


def _compacted(verified: Verified) -> Text:
    shown = verified.compacted[:COMPACTED_SHOWN]
    reason = "the log keeps only the last event of each key, and events after a gap are not recomputed"
    lines = [text(f"not an error: {reason}" if not verified.unread else f"or among what could not be read: {reason}")]
    lines.extend(
        text(f"{each.group_id}: {plural(each.missing, 'event')} no longer in the log, {each.unchecked} not recomputed")
        for each in shown
    )
    if verified.compacted_groups > len(shown):
        lines.append(text(f"... and {verified.compacted_groups - len(shown)} more groups", "dim"))
    return Text("\n").join(lines)


def _where(finding: LogFinding) -> Iterator[str]:
    yield f"partition {finding.partition}, offset {finding.offset}"
    if finding.group_id is not None:
        yield printable(finding.group_id) + ("" if finding.seq is None else f", seq {finding.seq}")


def _told(first: str, second: str) -> Text:
    return text(first, "green").append("" if first.endswith(" ") else "\n").append(text(second, "red"))
