"""The tables of docs/fleet.md, made from the schemas: `python -m tests.replay.fleet.docs_tables`."""

import pyarrow as pa

from muster.replay.fleet.tables.schemas import TABLES, Column, FleetTable


def page() -> str:
    """Return the tables and their columns as Markdown."""
    return "\n".join(_table(table) for table in TABLES.values())


def _table(table: FleetTable) -> str:
    lines = [f"### `{table.name}`", "", table.about, "", "| Column | Type | |", "|---|---|---|"]
    return "\n".join([*lines, *map(_line, table.columns), ""])


def _line(column: Column) -> str:
    return f"| `{column.name}` | {_kind(column.type)}{', or null' if column.can_be_null else ''} | {column.about} |"


def _kind(kind: pa.DataType) -> str:
    if pa.types.is_list(kind):
        return f"list of {kind.value_type}"
    if pa.types.is_timestamp(kind):
        return "timestamp, UTC"
    return str(kind)


if __name__ == "__main__":
    print(page(), end="")
