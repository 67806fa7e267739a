"""Prints answers for people (tables with readable durations) or for programs (raw rows).

A table has the columns that fit its width. Markdown has every column, full instants with their zone, and one line per
row.
"""

from collections.abc import Mapping, Sequence, Set
from datetime import tzinfo
from typing import IO, Any, Final

import msgspec
from rich.console import Console
from rich.text import Text

from muster.replay.fleet.questions.queries import Answer
from muster.replay.form import Format, View
from muster.replay.rebalances.wording import named
from muster.replay.render.markdown import escaped, moment
from muster.replay.render.markdown import table as markdown_table
from muster.replay.render.tables import WIDE, grid, moment_text, table
from muster.replay.text.printable import text
from muster.replay.text.times import Instant, duration, in_zone, zone_of_all

_KNOWN: Final = "known_partition_ms"
"""The known part of `partition_ms`, which is shown with it."""

LESS: Final = frozenset(
    {
        "incident",
        "culprits",
        "ended_at",
        "avoided",
        "unknown",
        "grade",
        "partitions_moved",
        "members_max",
        _KNOWN,
    }
)
"""Columns left out of tables, because other columns or the headline show what matters."""

LEAST: Final = LESS | {"incidents", "rebalancing_ms", "longest_ms", "joined", "left", "downtime_ms", "first_at"}
"""Columns left out of narrow tables, except those that a query is about (ABOUT)."""

ABOUT: Final[Mapping[str, Set[str]]] = {
    "causes": {"incidents", "rebalancing_ms"},
    "top": {"rebalancing_ms", "longest_ms"},
    "downtime": {"longest_ms"},
    "storms": {"incidents"},
}

LEFT_OUT: Final[Mapping[str, Set[str]]] = {"flapping": {"is_static", "at_once", "last_at"}}
"""More columns left out of narrow tables, to make room for the process of a flapping member, which is long but matters
more.
"""

BELOW: Final[Mapping[str, Mapping[str, Sequence[str]]]] = {
    "top": {"group_id": ("worst_kind",)},
    "storms": {"kind": ("client_host", "groups")},
    "incidents": {"group_id": ("kind", "headline")},
    "days": {"day": ("worst_kind",)},
    "downtime": {"since_at": ("until_at",), "owner": ("owner_before",)},
}
"""Columns shown below another one in tables, which saves width and keeps related values together."""

HEADINGS: Final = {
    "group_id": "Group",
    "partition_ms": "Partition time",
    "rebalancing_ms": "Not Stable",
    "downtime_ms": "Downtime",
    "groups_hit": "Groups",
    "client_host": "Host",
    "since_at": "From",
    "until_at": "Until",
    "paused": "Stood still",
}

PARTS: Final = {
    "totals": "In all",
    "causes": "Causes",
    "days": "Whole days (UTC)",
    "flapping": "Flapping, by whole days (UTC)",
    "storms": "Storms",
    "downtime": "Without a coordinator",
}
"""The headings of the parts of a group's answer."""


def partition_time(total_ms: int | None, known_ms: int) -> str:
    """'12 s'; 'at least 12 s' if only a part is known, and 'unknown' if nothing is."""
    if total_ms is not None:
        return duration(total_ms)
    return f"at least {duration(known_ms)}" if known_ms else "unknown"


def show(answer: Answer, view: View, console: Console, *, nothing: str) -> None:
    """Print an answer; `nothing` is printed if it has no rows."""
    if view.form is Format.JSON:
        _write_json(answer.records, console.file)
    elif view.form is Format.JSONL:
        _write_lines(answer.records, console.file)
    elif not answer.rows:
        console.print(text(nothing))
    elif view.form is Format.MD:
        console.file.write(_markdown(answer, view.zone))
    else:
        _print(answer, view.zone, console)


def show_parts(parts: Mapping[str, Answer], view: View, console: Console) -> None:
    """Print several answers, each under its heading; tables leave out those without rows."""
    if view.form is Format.JSON:
        _write_json({name: answer.records for name, answer in parts.items()}, console.file)
        return
    is_first = True
    for name, answer in parts.items():
        if view.form is Format.JSONL:
            _write_lines([{"part": name, **record} for record in answer.records], console.file)
        elif answer.rows:
            if not is_first:
                console.print()
            is_first = False
            if view.form is Format.MD:
                console.file.write(f"## {PARTS[name]}\n\n{_markdown(answer, view.zone)}")
            else:
                console.print(text(PARTS[name], "bold cyan"))
                _print(answer, view.zone, console, as_facts=name == "totals")


def _print(answer: Answer, zone: tzinfo, console: Console, *, as_facts: bool = False) -> None:
    columns = _columns_for(answer.name, answer.columns, console.width)
    below = {name: [each for each in names if each in columns] for name, names in BELOW.get(answer.name, {}).items()}
    if as_facts:
        (record,) = answer.records
        shown = [name for name in answer.columns if name != _KNOWN]
        console.print(grid([(_heading(name), _cell(name, record, zone, whole=True)) for name in shown]))
        return
    under = {each for names in below.values() for each in names}
    shown = [name for name in columns if name not in under]
    numbers = {name for name in shown if _is_number(answer, name)}
    zones = {name: _zone(answer, name, zone) for name in answer.columns}
    headings = {name: _heading(name, zones[name] or "") for name in shown}
    made = table(*headings.values(), right=(headings[name] for name in numbers))
    for name, column in zip(shown, made.columns, strict=True):
        if console.width < WIDE:
            column.header = Text(headings[name].replace("tion time", "tion\ntime"))
        column.no_wrap |= name == "day" or (answer.name in LEFT_OUT and name.endswith("_ms"))
        if answer.name == "causes" and name in {"kind", "partition_ms"}:
            column.no_wrap = name == "kind"  # 'at least 1 min 00 s' takes two lines rather than a kind
    for record in answer.records:
        cells = []
        for name in shown:
            cell = _cell(name, record, zone, has_zone=zones[name] is None)
            for each in below.get(name, ()):
                if record[each] is not None:
                    is_sentence = each == "headline"
                    told = _cell(each, record, zone, has_zone=True, style="" if is_sentence else "dim")
                    cell.append("\n").append_text(told)
            cells.append(cell)
        made.add_row(*cells)
    console.print(made)


def _columns_for(name: str, columns: Sequence[str], width: int) -> list[str]:
    left_out = LESS if width >= WIDE else (LEAST - ABOUT.get(name, set())) | LEFT_OUT.get(name, set())
    return [each for each in columns if each not in left_out]


def _heading(name: str, zones: str = "") -> str:
    words = HEADINGS.get(name) or name.removesuffix("_ms").removesuffix("_at").replace("_", " ").capitalize()
    return f"{words} ({zones})" if zones else words


def _zone(answer: Answer, name: str, zone: tzinfo) -> str | None:
    """The zone of a column's instants; None if there are two, '' if the column has none."""
    instants = [record[name] for record in answer.records if record[name] is not None] if name.endswith("_at") else []
    return zone_of_all(in_zone(each, zone) for each in instants) if instants else ""


def _is_number(answer: Answer, name: str) -> bool:
    index = answer.columns.index(name)
    return name == "partition_ms" or any(isinstance(row[index], int) for row in answer.rows)


def _cell(
    name: str,
    record: Mapping[str, Any],
    zone: tzinfo,
    *,
    whole: bool = False,
    has_zone: bool = False,
    style: str = "",
) -> Text:
    value = record[name]
    if name.endswith("_at") and isinstance(value, str):
        at = in_zone(Instant(value), zone)
        return text(at, style) if whole else moment_text(at, style, has_zone=has_zone)
    return text(_words(name, record, whole=whole), style)


def _words(name: str, record: Mapping[str, Any], *, whole: bool) -> str | None:
    value = record[name]
    if name == "partition_ms" and _KNOWN in record:
        return partition_time(value, record[_KNOWN] or 0)
    if value is None:
        return None
    if name.endswith("_ms") and isinstance(value, int):
        return duration(value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(map(str, value)) if whole else named(map(str, value))
    return str(value)


def _markdown(answer: Answer, zone: tzinfo) -> str:
    columns = [name for name in answer.columns if name != _KNOWN]
    rows = [[_markdown_cell(name, record, zone) for name in columns] for record in answer.records]
    return markdown_table([_heading(name) for name in columns], rows)


def _markdown_cell(name: str, record: Mapping[str, Any], zone: tzinfo) -> str:
    value = record[name]
    if name.endswith("_at") and isinstance(value, str):
        return moment(in_zone(Instant(value), zone))
    words = _words(name, record, whole=True)
    return escaped(words) if words is None or isinstance(value, str | list) else words  # numbers need no escaping


def _write_json(told: Any, file: IO[str]) -> None:  # noqa: ANN401 -- any JSON value
    file.write(msgspec.json.format(msgspec.json.encode(told), indent=2).decode() + "\n")


def _write_lines(records: Sequence[Mapping[str, Any]], file: IO[str]) -> None:
    file.writelines(msgspec.json.encode(record).decode() + "\n" for record in records)
