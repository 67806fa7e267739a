"""The tables of `groups`, `history` and `state`. Narrow first: they are read at 80 columns."""

from collections.abc import Iterable

from rich import box
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from muster.coordinator.group.configs import UPSTREAM
from muster.events.events import GroupAdvanced
from muster.events.state import GroupState, MemberRole
from muster.replay.groups import GroupLine, Groups
from muster.replay.rebalances.rebalance import Outcome
from muster.replay.rebalances.wording import host, name, partitions
from muster.replay.render.printable import text
from muster.replay.state import MemberState, RegistrationState, StateAt
from muster.replay.story import Line, LineKind, Story
from muster.replay.times import Instant, clock_of, day_of, setting

_STATE_STYLES = {
    GroupState.STABLE: "green",
    GroupState.EMPTY: "dim",
    GroupState.DEAD: "dim",
    GroupState.PREPARING_REBALANCE: "yellow",
    GroupState.COMPLETING_REBALANCE: "yellow",
}

WIDE = 120
"""The terminal width from which on cells have room for sentences."""


def table(*columns: str, right: Iterable[str] = ()) -> Table:
    """A table without frames; the last column takes what is left of the width."""
    made = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold", show_edge=False)
    numbers = set(right)
    for column in columns:
        is_number = column in numbers
        made.add_column(column, justify="right" if is_number else "left", no_wrap=is_number, overflow="fold")
    return made


def grid(rows: Iterable[tuple[str, RenderableType]]) -> Table:
    """Labels and what there is to say about each."""
    made = Table.grid(padding=(0, 2, 0, 0))
    made.add_column(style="bold cyan", no_wrap=True)
    made.add_column(overflow="fold")
    for label, content in rows:
        made.add_row(label, content)
    return made


def state_text(state: GroupState | None) -> Text:
    return text(state, _STATE_STYLES.get(state, "red") if state else "red")


def moment_text(at: Instant | None, style: str = "") -> Text:
    """Day and time to the second."""
    return text(f"{day_of(at)} {clock_of(at)[:8]}" if at else None, style)


# ---- groups -------------------------------------------------------------------------------------


def print_groups(groups: Groups, console: Console) -> None:
    """A line for each group, then what could not be read."""
    made = table("Group", "State", "Gen", "Members", "Rebal.", "Last rebalance (UTC)", right=("Gen", "Rebal."))
    for line in groups.groups:
        made.add_row(
            text(line.group_id, "bold"),
            _group_state(line),
            text(line.generation_id),
            text(_members_text(line)),
            text(line.rebalances),
            _last_rebalance(line, wide=console.width >= WIDE),
        )
    console.print(made if groups.groups else text(f"No group has an event in {groups.log}."))
    for line in groups.groups:
        for reason in line.quarantined:
            console.print(text(f"{line.group_id} is quarantined: {reason}", "red"))
        if line.missing_events:
            console.print(text(f"{line.group_id}: {line.missing_events} events are no longer in the log", "dim"))
    if any(_is_upstream(line) for line in groups.groups):
        console.print(text("upstream: coordinated by the cluster behind the sidecar", "dim"))
    for reason in groups.unreadable_keys:
        console.print(text(reason, "red"))


def _is_upstream(line: GroupLine) -> bool:
    return line.coordinator == UPSTREAM


def _group_state(line: GroupLine) -> Text:
    state = state_text(line.state)
    return state.append(text(", upstream", "default")) if _is_upstream(line) else state


def _members_text(line: GroupLine) -> str:
    return f"{line.members} ({line.static_members} static)" if line.static_members else str(line.members)


def _last_rebalance(line: GroupLine, *, wide: bool) -> Text:
    if line.last_rebalance_at is None:
        return text(None)
    cell = moment_text(line.last_rebalance_at)
    outcome = "" if line.last_outcome in (Outcome.STABLE, Outcome.EMPTIED) else f", {line.last_outcome}"
    return cell.append("\n").append(text(f"{line.last_text if wide else line.last_cause}{outcome}", "dim"))


# ---- history ------------------------------------------------------------------------------------

_LINE_STYLES = {LineKind.GAP: "yellow", LineKind.BROKEN: "red", LineKind.COORDINATOR: "magenta"}
_TYPE_STYLES = {"RebalanceStarted": "bold yellow", "GroupStabilized": "green", "GroupEmptied": "green"}


def print_story(story: Story, console: Console) -> None:
    """A line for each event; the day where it changes, the time once for what was decided at once.

    GroupAdvanced says nothing that the line before it does not; JSON has it.
    """
    made = table("UTC", "Seq", "Gen", f"What happened to {story.group_id}", right=("Seq", "Gen"))
    day, clock = "", ""
    for line in story.lines:
        if line.type == GroupAdvanced.__name__:
            continue
        if day_of(line.at) != day:
            day = day_of(line.at)
            made.add_row("", "", "", text(day, "bold"))
        repeated = clock == clock_of(line.at)
        clock = clock_of(line.at)
        style = _LINE_STYLES.get(line.kind) or _TYPE_STYLES.get(line.type, "")
        made.add_row(
            text("" if repeated else clock, "dim"),
            text(line.seq or "", "dim"),
            _generation(line),
            text(line.text, style),
        )
    console.print(made)


def _generation(line: Line) -> Text:
    return text(line.generation if line.kind is LineKind.GROUP else "")


# ---- state --------------------------------------------------------------------------------------


def print_state(state: StateAt, console: Console) -> None:
    """The group, then its members."""
    protocol = " / ".join(filter(None, (state.protocol_type, state.protocol_name))) or None
    since = f"since {day_of(state.state_since)} {clock_of(state.state_since)}"
    rows: list[tuple[str, RenderableType]] = [
        ("Group", text(state.group_id, "bold")),
        ("As of", text(f"{day_of(state.at)} {clock_of(state.at)} UTC, seq {state.seq}")),
        *([] if state.asked_for is None else [("Asked for", moment_text(state.asked_for).append(" UTC"))]),
        ("State", state_text(state.state).append(text(f", {since}", "default"))),
        ("Generation", text(state.generation_id)),
        ("Protocol", text(protocol)),
        ("Coordinator", text(state.coordinator)),
    ]
    if state.settings:
        rows.append(("Settings", Text("\n").join(text(f"{key}={value}") for key, value in state.settings.items())))
    if state.registrations:
        rows.append(("Expected", Text("\n").join(map(_registration, state.registrations))))
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


def _registration(registration: RegistrationState) -> Text:
    since = f"registered {day_of(registration.registered_at)} {clock_of(registration.registered_at)}"
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
        return text(f"{member.assignment_bytes} bytes that are no consumer assignment", "yellow")
    return text(partitions(member.assignment) or "nothing")
