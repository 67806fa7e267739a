"""The tables of `groups`, `history` and `state`, designed for 80 columns."""

from collections.abc import Iterable
from datetime import UTC, tzinfo
from typing import Final

from rich import box
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from muster.coordinator.group.configs import UPSTREAM
from muster.events.ids import GroupId
from muster.events.state import GroupState, MemberRole
from muster.replay.rebalances.rebalance import Outcome
from muster.replay.rebalances.wording import host, name, partitions
from muster.replay.render.time_words import no_group_text
from muster.replay.results.groups import GroupLine, Groups, Owner
from muster.replay.results.state import MemberState, RegistrationState, StateAt
from muster.replay.results.story import Line, LineKind
from muster.replay.text.printable import text
from muster.replay.text.times import (
    Instant,
    clock_of,
    day_of,
    in_zone,
    moment_of,
    setting,
    zone_beside,
    zone_of,
    zone_of_all,
)

_STATE_STYLES = {
    GroupState.STABLE: "green",
    GroupState.EMPTY: "dim",
    GroupState.DEAD: "dim",
    GroupState.PREPARING_REBALANCE: "yellow",
    GroupState.COMPLETING_REBALANCE: "yellow",
}

WIDE = 120
"""In a terminal of at least this width, cells have room for sentences."""


def table(*columns: str, right: Iterable[str] = ()) -> Table:
    """Make a table without borders; the last column takes the remaining width."""
    made = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold", show_edge=False)
    numbers = set(right)
    for column in columns:
        is_number = column in numbers
        made.add_column(text(column), justify="right" if is_number else "left", no_wrap=is_number, overflow="fold")
    return made


def grid(rows: Iterable[tuple[str, RenderableType]]) -> Table:
    """Make a grid of labels and their contents."""
    made = Table.grid(padding=(0, 2, 0, 0))
    made.add_column(style="bold cyan", no_wrap=True)
    made.add_column(overflow="fold")
    for label, content in rows:
        made.add_row(label, content)
    return made


def state_text(state: GroupState | None) -> Text:
    return text(state, _STATE_STYLES.get(state, "red") if state else "red")


def moment_text(at: Instant | None, style: str = "", *, has_zone: bool = False) -> Text:
    """Format day and time to the second, with the zone unless a heading shows it."""
    zone = f" {zone_of(at)}" if at and has_zone else ""
    return text(f"{day_of(at)} {clock_of(at)[:8]}{zone}" if at else None, style)


# ---- groups -------------------------------------------------------------------------------------


def print_groups(groups: Groups, console: Console) -> None:
    """Print a line for each group, then what was unreadable."""
    instants = [at for line in groups.groups if (at := line.last_at) is not None]
    zone = zone_of_all(instants)
    last = "Last incident" if zone is None else f"Last incident ({zone})"
    made = table("Group", "State", "Gen", "Members", "Rebal.", last, right=("Gen", "Rebal."))
    for line in groups.groups:
        made.add_row(
            text(line.group_id, "bold"),
            _group_state(line),
            text(line.generation_id),
            text(_members_text(line)),
            text(f"{line.rebalances}{'+' if line.missing_events else ''}"),
            _last(line, wide=console.width >= WIDE, has_zone=zone is None),
        )
    console.print(made if groups.groups else text(no_group_text(groups)))
    for line in groups.groups:
        for reason in line.quarantined:
            console.print(text(f"{line.group_id} is quarantined: {reason}", "red"))
        if line.missing_events:
            console.print(
                text(
                    f"{line.group_id}: {line.missing_events} events are no longer in the log, nor is what they started",
                    "dim",
                )
            )
        if line.unknown_events:
            console.print(text(f"{line.group_id}: {line.unknown_events} events of unknown types", "red"))
    if any(_is_upstream(line) for line in groups.groups):
        console.print(text("upstream: coordinated by the cluster behind the sidecar", "dim"))
    if any(line.owner is Owner.MOVING for line in groups.groups):
        console.print(text("moving: released to that cluster, and some members are still with Muster", "dim"))
    for reason in groups.unreadable_keys:
        console.print(text(reason, "red"))


def _is_upstream(line: GroupLine) -> bool:
    return line.coordinator == UPSTREAM


def _group_state(line: GroupLine) -> Text:
    state = state_text(line.state)
    return state if line.owner is Owner.MUSTER else state.append(text(f", {line.owner}", "default"))


def _members_text(line: GroupLine) -> str:
    return f"{line.members} ({line.static_members} static)" if line.static_members else str(line.members)


def _last(line: GroupLine, *, wide: bool, has_zone: bool) -> Text:
    """Return the last incident, or the last rebalance if only that is known."""
    cell = moment_text(line.last_at, has_zone=has_zone)
    incident = line.last_incident
    if incident is not None:
        words = f"{incident.kind}: {incident.headline}" if wide else incident.kind
        return cell.append("\n").append(text(words if incident.ended_at is not None else f"{words}, not over", "dim"))
    if line.last_rebalance_at is None:
        return cell
    outcome = "" if line.last_outcome in (Outcome.STABLE, Outcome.EMPTIED) else f", {line.last_outcome}"
    return cell.append("\n").append(text(f"{line.last_text if wide else line.last_cause}{outcome}", "dim"))


# ---- history ------------------------------------------------------------------------------------

_LINE_STYLES = {LineKind.GAP: "yellow", LineKind.BROKEN: "red", LineKind.COORDINATOR: "magenta"}
_TYPE_STYLES = {"RebalanceStarted": "bold yellow", "GroupStabilized": "green", "GroupEmptied": "green"}


_PAGE: Final = 500
"""The number of lines for which column widths are computed together."""


class StoryTable:
    """A table with a line for each event. The day is only shown where it changes, the time once for events decided
    together.
    """

    def __init__(self, group_id: GroupId, zone: tzinfo, console: Console) -> None:
        self._columns = (str(zone), "Seq", "Gen", f"What happened to {group_id}")
        self._zone = zone
        self._console = console
        self._page: list[Line] = []
        self._has_printed = False
        self._day = ""
        self._clock = ""

    def feed(self, line: Line) -> None:
        self._page.append(line)
        if len(self._page) == _PAGE:
            self._print()

    def end(self) -> None:
        if self._page or not self._has_printed:
            self._print()

    def _print(self) -> None:
        made = table(*self._columns, right=("Seq", "Gen"))
        made.show_header = not self._has_printed
        if self._has_printed or len(self._page) == _PAGE:  # the same widths on each page
            made.columns[0].min_width, made.columns[1].min_width, made.columns[2].min_width = 12, 8, 6
        for line in self._page:
            at = in_zone(line.at, self._zone)
            day = f"{day_of(at)} {zone_of(at)}"
            if self._day != day:
                made.add_row("", "", "", text(day if self._zone is not UTC else day_of(at), "bold"))
            is_repeated = self._day == day and self._clock == clock_of(at)
            self._day, self._clock = day, clock_of(at)
            style = _LINE_STYLES.get(line.kind) or _TYPE_STYLES.get(line.type, "")
            made.add_row(
                text("" if is_repeated else clock_of(at), "dim"),
                text(line.seq or "", "dim"),
                _generation(line),
                text(line.text, style),
            )
        self._console.print(made)
        self._page, self._has_printed = [], True


def _generation(line: Line) -> Text:
    return text(line.generation if line.kind is LineKind.GROUP else "")


# ---- state --------------------------------------------------------------------------------------


def print_state(state: StateAt, console: Console) -> None:
    """Print the group, then its members."""
    protocol = " / ".join(filter(None, (state.protocol_type, state.protocol_name))) or None
    since = f"since {_moment(state.state_since, state.at)}"
    rows: list[tuple[str, RenderableType]] = [
        ("Group", text(state.group_id, "bold")),
        ("As of", text(f"{moment_of(state.at)}, seq {state.seq}")),
        *([] if state.asked_for is None else [("Asked for", _asked_for(state.asked_for))]),
        ("State", state_text(state.state).append(text(f", {since}", "default"))),
        ("Generation", text(state.generation_id)),
        ("Protocol", text(protocol)),
        ("Coordinator", text(state.coordinator)),
    ]
    if state.configs:
        rows.append(("Configs", Text("\n").join(text(f"{key}={value}") for key, value in state.configs.items())))
    if state.registrations:
        rows.append(("Expected", Text("\n").join(_registration(each, state.at) for each in state.registrations)))
    rows.extend(("Missing", text(note, "yellow")) for note in state.notes)
    console.print(grid(rows))
    if not state.members:
        console.print(text("No members.", "dim"))
        return
    console.print()
    made = table("Member", "Process", "Session", "Assignment", right=("Session",))
    for member in state.members:
        made.add_row(
            _member_cell(member), _process_cell(member), text(setting(member.session_timeout_ms)), _has(member)
        )
    console.print(made)


def _asked_for(at: Instant) -> Text:
    return moment_text(at, has_zone=True)


def _moment(at: Instant, head: Instant) -> str:
    return f"{day_of(at)} {clock_of(at)}{zone_beside(at, head)}"


def _registration(registration: RegistrationState, head: Instant) -> Text:
    since = f"registered {_moment(registration.registered_at, head)}"
    return text(registration.group_instance_id).append(text(f"  {since}", "dim"))


def _member_cell(member: MemberState) -> Text:
    cell = text(name(member), "bold")
    words = ["static" if member.group_instance_id is not None else "dynamic"]
    words.extend(["leader"] if member.is_leader else [])
    words.extend([member.role.lower()] if member.role is not MemberRole.ACTIVE else [])
    words.extend(["retiring"] if member.retiring else [])
    return cell.append("\n").append(text(", ".join(words), "dim"))


def _process_cell(member: MemberState) -> Text:
    return text(host(member.client_host)).append("\n").append(text(member.client_id, "dim"))


def _has(member: MemberState) -> Text:
    if member.assignment is None:
        return text(f"{member.assignment_bytes} bytes that are not a consumer assignment", "yellow")
    return text(partitions(member.assignment) or "nothing")
