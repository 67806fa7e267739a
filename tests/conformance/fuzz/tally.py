"""Counts of responses to schedules by API and error code, to check that they contain more than refused requests.

It has the table, and the minimum counts.
"""

from collections import Counter
from collections.abc import Iterable

from kio.schema.errors import ErrorCode
from rich.table import Table


def table(tally: Counter[tuple[str, int]]) -> Table:
    """A line for each API."""
    shown = Table("", "answers", "of which")
    for api in sorted({api for api, _ in tally}):
        codes = {code: count for (each, code), count in tally.items() if each == api}
        shown.add_row(api, str(sum(codes.values())), _codes(codes.items()))
    return shown


def _codes(codes: Iterable[tuple[int, int]]) -> str:
    ordered = sorted(codes, key=lambda each: -each[1])
    return ", ".join(f"{count} {ErrorCode(code).name}" for code, count in ordered if code or len(ordered) > 1)
