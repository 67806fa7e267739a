"""Implements `muster fleet top`, `causes`, `storms`, `incidents`, `group`.

Errors end a command with one line, and the exit codes of `muster replay`: 1 if the tables can be read but lack what was
asked for, 2 for a wrong option or unreadable tables.
"""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import msgspec

from muster import terminal
from muster.events.near_names import did_you_mean
from muster.replay.commands.asked import fail_unmatched, view_of, when, window_of
from muster.replay.commands.opening import CANNOT_READ, NOT_FOUND, fail
from muster.replay.fleet.asked import By, Order
from muster.replay.fleet.choice import check_needs
from muster.replay.form import Format, View
from muster.replay.history.window import AtTime, Window
from muster.replay.incidents.windows import STORM_GROUPS_MIN
from muster.replay.text.grammar import listed, plural
from muster.replay.text.times import in_zone

if TYPE_CHECKING:
    from muster.replay.fleet.questions.queries import Answer, AskedRows

T = TypeVar("T")


class Given(msgspec.Struct, frozen=True, kw_only=True):
    """The options that all of these commands have, as given."""

    tables: Path
    since: str | None
    until: str | None
    group: str | None
    limit: int
    tz: str | None
    form: Format


class Asking:
    """A query: the tables, the window, and the output format. Ends the command for a wrong option."""

    def __init__(self, given: Given) -> None:
        check_needs()
        self.given = given
        self.tables = given.tables
        self.view: View = view_of(given.form, given.tz)
        self.window: Window = window_of(given.since, given.until, self.view)

    @property
    def asked(self) -> "AskedRows":
        from muster.replay.fleet.questions.queries import AskedRows  # noqa: PLC0415 -- an extra

        since, until = self.window.since, self.window.until
        return AskedRows(
            since_ms=since.wall_ms if isinstance(since, AtTime) else None,
            until_ms=until.wall_ms if isinstance(until, AtTime) else None,
            groups=self.given.group,
            limit=self.given.limit,
        )

    def told(self, ask: Callable[[], T]) -> T:
        """Return the answer; ends the command if there are no tables."""
        from muster.replay.fleet.tables.builds import NoTables  # noqa: PLC0415 -- an extra

        try:
            return ask()
        except NoTables as error:
            fail(str(error), CANNOT_READ)

    def show(self, ask: "Callable[[], Answer]", thing: str) -> None:
        """Print the answer, or if it has no rows, where was searched. Ends the command if no group matches the pattern.

        `thing`: the noun for a row, such as 'storm'.
        """
        from muster.replay.fleet.questions.queries import groups_in  # noqa: PLC0415 -- an extra
        from muster.replay.fleet.questions.show import show  # noqa: PLC0415

        answer = self.told(ask)
        pattern = self.given.group
        if not answer.rows and pattern is not None and not self.told(lambda: groups_in(self.tables, pattern)):
            fail_unmatched(str(self.tables), pattern)
        show(answer, self.view, terminal.stdout(), nothing="" if answer.rows else self._nothing(thing))

    def _nothing(self, thing: str) -> str:
        from muster.replay.fleet.questions.queries import AskedRows, looked_at  # noqa: PLC0415 -- an extra

        asked, whole = (self.told(partial(looked_at, self.tables, each)) for each in (self.asked, AskedRows()))
        told = f"The tables in {self.tables} have no {thing}{when(self.window, self.view)}"
        seen = self._counted(asked)
        return f"{told}. Looked at: {seen}{'' if asked['incidents'] else f'; in all they have {self._counted(whole)}'}."

    def _counted(self, found: "Mapping[str, Any]") -> str:
        if not found["incidents"]:
            return "no incident"
        first, last = (in_zone(found[name], self.view.zone) for name in ("first_at", "last_at"))
        groups = plural(found["groups"], "group")
        return f"{plural(found['incidents'], 'incident')} of {groups}, from {first} to {last}"


def show_top(given: Given) -> None:
    """`muster fleet top`."""
    asking = Asking(given)
    from muster.replay.fleet.questions.queries import top  # noqa: PLC0415 -- an extra

    asking.show(lambda: top(given.tables, asking.asked), "rebalance")


def show_causes(given: Given, by: By) -> None:
    """`muster fleet causes`."""
    asking = Asking(given)
    from muster.replay.fleet.questions.queries import causes  # noqa: PLC0415 -- an extra

    asking.show(lambda: causes(given.tables, asking.asked, by), "incident" if by is By.KIND else "rebalance")


def show_storms(given: Given) -> None:
    """`muster fleet storms`."""
    asking = Asking(given)
    from muster.replay.fleet.questions.queries import storms  # noqa: PLC0415 -- an extra

    asking.show(lambda: storms(given.tables, asking.asked), f"storm (of {STORM_GROUPS_MIN} groups or more)")


def show_incidents(given: Given, kind: str | None, sort: Order) -> None:
    """`muster fleet incidents`."""
    asking = Asking(given)
    from muster.replay.fleet.questions.queries import incidents, kinds_in  # noqa: PLC0415 -- an extra

    kinds = asking.told(lambda: kinds_in(given.tables)) if kind is not None else []
    if kind is not None and kind not in kinds:
        fail(f"no incident in {given.tables} is a {kind!r}: there are {listed(kinds) or 'none'}", NOT_FOUND)
    asking.show(lambda: incidents(given.tables, asking.asked, kind, sort), "incident" if kind is None else f"{kind!r}")


def show_group(given: Given, group: str) -> None:
    """`muster fleet group`."""
    asking = Asking(msgspec.structs.replace(given, group=group))
    from muster.replay.fleet.questions import queries  # noqa: PLC0415 -- an extra
    from muster.replay.fleet.questions.show import show_parts  # noqa: PLC0415

    parts = asking.told(lambda: queries.group(given.tables, asking.asked))
    if not any(answer.rows for name, answer in parts.items() if name != "totals"):
        _fail_unknown(asking, group)
    show_parts(parts, asking.view, terminal.stdout())


def _fail_unknown(asking: Asking, group: str) -> NoReturn:
    """End the command, naming similar groups, or the times at which the tables mention this one."""
    from muster.replay.fleet.questions.queries import extent_of, groups_in  # noqa: PLC0415 -- an extra

    extent = asking.told(lambda: extent_of(asking.tables, group))
    if extent is not None:
        begin, end = (in_zone(each, asking.view.zone) for each in extent)
        what = f"have nothing about {group!r}{when(asking.window, asking.view)}"
        fail(f"the tables in {asking.tables} {what}; they have it from {begin} to {end}", NOT_FOUND)
    guess = did_you_mean(group, asking.told(lambda: groups_in(asking.tables, "*")))
    fail(f"there is no group {group!r} in {asking.tables}{guess}", NOT_FOUND)
