"""A heat map by group and hour, as SVG paths. Pure.

A row is a group, a column an hour (or several, if there are more hours than columns). The level of a cell shows the
cost of what began in that hour; levels are the same on every page, so that pages can be compared.
"""

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from muster.replay.text.times import Instant, instant

HOUR_MS: Final = 3_600_000
COLUMNS_MAX: Final = 24 * 31
"""The number of hours in a month; narrower columns would be indistinguishable on a screen."""

LEVELS: Final = ((3_600_000, 5, "1 h or more"), (600_000, 4, "10 min"), (60_000, 3, "1 min"), (10_000, 2, "10 s"))
"""The minimum partition time (ms) of each level above 1."""

LABELS_MAX: Final = 8


class Scale(msgspec.Struct, frozen=True, kw_only=True):
    """The columns: their number, the hours in each, and the hour (counted from 1970) at which the first begins."""

    first_hour: int
    hours: int
    columns: int

    def column(self, hour: int) -> int:
        return (hour - self.first_hour) // self.hours

    def begin(self, column: int) -> Instant:
        """The start of a column."""
        return instant((self.first_hour + column * self.hours) * HOUR_MS)

    @property
    def labels(self) -> tuple[tuple[float, Instant], ...]:
        """Label positions in percent of the width, and the time at each. The last position leaves room for its text."""
        step = max(1, -(-self.columns // LABELS_MAX))
        places = range(0, max(1, self.columns - step + 1), step)
        return tuple((round(100 * at / self.columns, 2), self.begin(at)) for at in places)


class HeatRow(msgspec.Struct, frozen=True, kw_only=True):
    """A row: its paths by level, and its most expensive column."""

    name: str
    rebalances: int
    partition_ms: int
    rebalancing_ms: int
    paths: tuple[tuple[int, str], ...]
    worst: Instant
    worst_ms: int


def scale_of(first_hour: int, last_hour: int) -> Scale:
    """The scale for a range of hours, both ends included."""
    hours = last_hour - first_hour + 1
    width = max(1, -(-hours // COLUMNS_MAX))
    return Scale(first_hour=first_hour, hours=width, columns=-(-hours // width))


def level_of(partition_ms: int) -> int:
    """The level of a cell in which something happened: 1 to 5."""
    return next((level for least, level, _ in LEVELS if partition_ms >= least), 1)


def paths_of(cells: Mapping[int, int], scale: Scale) -> tuple[tuple[int, str], ...]:
    """The SVG paths of a row, by level. `cells`: ms by hour. Adjacent cells of the same level become one stroke."""
    columns: dict[int, int] = {}
    for hour, partition_ms in cells.items():
        column = scale.column(hour)
        columns[column] = columns.get(column, 0) + partition_ms
    strokes: dict[int, list[tuple[int, int]]] = {}
    for column, level in sorted((column, level_of(ms)) for column, ms in columns.items()):
        of_level = strokes.setdefault(level, [])
        if of_level and sum(of_level[-1]) == column:
            of_level[-1] = (of_level[-1][0], of_level[-1][1] + 1)
        else:
            of_level.append((column, 1))
    return tuple((level, _path(each)) for level, each in sorted(strokes.items()))


def _path(strokes: Iterable[tuple[int, int]]) -> str:
    return "".join(f"M{column} 5h{width}" for column, width in strokes)
