"""The output of `muster members`: tables for terminals, JSON for programs.

In JSON the fields are those of the structs, times are in ms, and errors have Kafka's names. Imports nothing that takes
long to load.
"""

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser
from typing import TYPE_CHECKING, Any

import msgspec
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from muster.coordinator.group.configs import GROUP_CONFIGS
from muster.durations import readable

if TYPE_CHECKING:
    from muster.coordinator.client.group_admin import ConfigEntry, MemberResult
    from muster.coordinator.client.group_moves import GroupCoordinator
    from muster.coordinator.group.outcomes import ListedMember

WIDE = 120
"""The minimum width for cells with sentences."""
_BESIDE_AN_ID = 34
"""The columns needed for an address and a standing next to a member id."""

_STYLES = {"Active": "green", "Expected": "yellow", "Waiting": "yellow", "Called": "cyan"}
"""The style of a `Standing`."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def printable(text: str) -> str:
    """Make a text safe for a terminal: clients may send escape sequences."""
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


def print_json(content: Mapping[str, Any], console: Console) -> None:
    """Print one indented document."""
    console.file.write(msgspec.json.format(msgspec.json.encode(content), indent=2).decode() + "\n")


def results_json(group_id: str, results: Sequence["MemberResult"]) -> Mapping[str, Any]:
    """Return the JSON of results; `done` is true if all of them are."""
    return {
        "group_id": group_id,
        "done": all(each.done for each in results),
        "members": [
            {
                "member": each.member,
                "done": each.done,
                "error": each.error.name.upper(),
                "message": each.message,
            }
            for each in results
        ],
    }


def print_members(
    group_id: str, members: Sequence["ListedMember"], console: Console, *, is_upstream: bool = False
) -> None:
    """Print a line for each member and each expected instance, with marks for the leader and retiring members.

    `is_upstream`: upstream has the group, so its members are unknown here.
    """
    if not members:
        here = " at this Muster" if is_upstream else ""
        console.print(_cell(f"Group {group_id} has no members{here}, and none is expected."))
        return
    columns = ["Instance", "Member id", "Client", "Host", "Standing", "Session left", "Since (UTC)"]
    if console.width >= WIDE:
        table = _table(*columns)
        for each in members:
            table.add_row(*_member_cells(each))
    else:
        table = _table("Member, since (UTC)", "Client", "Standing")
        longest = max(len(each.member_id or "") for each in members)
        table.columns[0].no_wrap = longest + _BESIDE_AN_ID <= console.width  # so that it can be copied
        for each in members:
            instance, member_id, client, host, standing, left, since = _member_cells(each)
            who = Text("  ").join([instance, since])
            table.add_row(_lines(who, member_id), _lines(client, host), _lines(standing, left))
    console.print(table)


def _member_cells(member: "ListedMember") -> tuple[Text, ...]:
    standing = ", ".join([member.standing.value, *["leader"] * member.is_leader, *["retiring"] * member.retiring])
    return (
        _cell(member.group_instance_id, "bold"),
        _cell(member.member_id),
        _cell(member.client_id),
        _cell(member.client_host.removeprefix("/")),
        _cell(standing, _STYLES.get(member.standing, "")),
        _cell(_session_left(member)),
        _cell(f"{_EPOCH + timedelta(milliseconds=member.since_ms):%Y-%m-%d %H:%M:%S}"),
    )


def _lines(*cells: Text) -> Text:
    return Text("\n").join(cells)


def print_coordinator(group_id: str, coordinator: "GroupCoordinator | None", console: Console) -> None:
    """Print a line with the group's coordinator, if known."""
    if coordinator is not None:
        end = "" if coordinator.text.endswith("?") else "."
        console.print(_cell(f"Group {group_id} is {coordinator.text}{end}"))


def _session_left(member: "ListedMember") -> str | None:
    if member.join_left_ms is not None:
        return f"waits for the join, up to {readable(member.join_left_ms)}"
    return None if member.session_left_ms is None else readable(member.session_left_ms)


def print_configs(configs: Sequence["ConfigEntry"], console: Console) -> None:
    """Print a line for each config: Muster's own first, those set for this group in bold, with the documentation.

    The documentation is omitted on a narrow terminal. That of a broker's config is HTML.
    """
    wide = console.width >= WIDE
    table = _table("Config", "Value", "Source", *["What it does"] * wide)
    own = list(GROUP_CONFIGS)
    for each in sorted(configs, key=lambda each: own.index(each.name) if each.name in own else len(own)):
        style = "bold" if each.is_set else ""
        does = [_cell(_without_markup(each.documentation), "dim")] * wide
        source = "this group" if each.is_set else "default"
        table.add_row(_cell(each.name, style), _cell(each.value, style), _cell(source, style), *does)
    console.print(table)


def _without_markup(documentation: str) -> str:
    """Return the text of HTML documentation, as Kafka's brokers have it, in one line."""
    if not re.search(r"</?[a-z]", documentation):
        return documentation
    text = _Text()
    text.feed(documentation)
    text.close()
    return " ".join("".join(text.parts).split())


class _Text(HTMLParser):
    """Extracts the text of HTML; list items begin with a dash."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.parts: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:  # noqa: ARG002 -- as the base has it
        if tag in {"li", "p", "br", "ul", "ol"}:
            self.parts.append(" - " if tag == "li" else " ")

    def handle_data(self, data: str) -> None:
        self.parts.append(data)


def _table(*columns: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold", show_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


def _cell(content: str | None, style: str = "") -> Text:
    """Return a cell without markup and control characters; a dash for None."""
    return Text(printable(content) if content else "-", style=style)
