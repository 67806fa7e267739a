"""The result of `diff`: the group, its members, its partitions; entries that are on only one side are marked with a
sign.
"""

from collections.abc import Iterator, Sequence

from rich.console import Console, RenderableType
from rich.text import Text

from muster.replay.rebalances.rebalance import MemberRef, ValueChange
from muster.replay.rebalances.wording import host, name
from muster.replay.render import markdown
from muster.replay.render.tables import grid
from muster.replay.render.why_table import movement_text
from muster.replay.results.diff import Diff, GroupAt, MemberChange
from muster.replay.text.grammar import plural
from muster.replay.text.printable import text
from muster.replay.text.times import clock_of, day_of, moment_of, zone_beside


def print_diff(diff: Diff, console: Console) -> None:
    """Print the comparison on one page."""
    console.print(text(diff.group_id, "bold"))
    console.print(grid(_rows(diff)))


def diff_in_markdown(diff: Diff) -> str:
    """Return the comparison as a heading and a list."""
    return f"## {markdown.escaped(diff.group_id)}\n\n{markdown.facts(_rows(diff))}"


def _rows(diff: Diff) -> Iterator[tuple[str, RenderableType]]:
    yield "From", _moment(diff.before)
    yield "To", _moment(diff.after)
    if not diff.same_life:
        yield "Between", text("the group was deleted and created again", "yellow")
    if diff.group:
        yield "Group", _changes(diff.group)
    if diff.configs:
        yield "Configs", _changes(diff.configs)
    yield "Members", _members(diff)
    if diff.movement is not None:
        yield "Moved", movement_text(diff.movement)
    else:
        yield "Moved", text("not known: an assignment is not a consumer's, or cannot be decoded", "yellow")
    for note in diff.notes:
        yield "Missing", text(note, "yellow")


def _moment(moment: GroupAt) -> Text:
    at = moment.at
    told = f"{moment_of(at)}, seq {moment.seq}, generation {moment.generation_id}"
    if moment.asked_for is not None:
        asked = moment.asked_for
        told += f"; asked for {day_of(asked)} {clock_of(asked)}{zone_beside(asked, at)}"
    return text(told)


def _changes(changes: Sequence[ValueChange]) -> Text:
    return Text("\n").join(map(_change, changes))


def _change(change: ValueChange) -> Text:
    before, after = (text("(not set)" if each is None else each) for each in (change.before, change.after))
    return text(f"{change.name}: ").append(before).append(" -> ").append(after)


def _members(diff: Diff) -> Text:
    lines = [text(f"{plural(diff.stayed, 'member')} unchanged")]
    lines.extend(_member("+", member, "green") for member in diff.came)
    lines.extend(_member("-", member, "red") for member in diff.went)
    lines.extend(map(_changed, diff.changed))
    return Text("\n").join(lines)


def _member(sign: str, member: MemberRef, style: str) -> Text:
    line = text(f"{sign} {name(member)}", style)
    return line.append(text(f"  {host(member.client_host)}, client {member.client_id}", "dim"))


def _changed(change: MemberChange) -> Text:
    line = text(f"~ {name(change.after)}", "yellow")
    for field in change.fields:
        line.append("\n    ").append(_change(field))
    return line
