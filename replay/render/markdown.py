"""Results in Markdown, for a chat or a ticket. Client text is escaped: it can neither format text nor end a cell."""

import re
from collections.abc import Iterable, Sequence

from muster.replay.rebalances.wording import host, name, partitions
from muster.replay.render.time_words import no_group_text
from muster.replay.results.groups import GroupLine, Groups
from muster.replay.results.state import MemberState, StateAt
from muster.replay.text.printable import printable
from muster.replay.text.times import Instant, moment_of, setting

_SPECIAL = re.compile(r"([\\`*_\[\]<>|~&$@]|^[-+#])")
"""Characters that format text, mention a user in a chat, or begin a list or a heading; not those in dates."""
_NUMBERED = re.compile(r"^(\d+)([.)])(?=\s|$)")
"""The beginning of a numbered list (unlike 2.4): the digit cannot be escaped, but the character after it can."""


def escaped(content: object) -> str:
    """Escape text so that Markdown shows it literally, on one line. None becomes a dash."""
    if content is None:
        return "-"
    return _NUMBERED.sub(r"\1\\\2", _SPECIAL.sub(r"\\\1", printable(str(content))))


def moment(at: Instant | None) -> str:
    """Format day, time of day and zone. None becomes a dash."""
    return "-" if at is None else moment_of(at)


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Make a table; the cells are already Markdown."""
    lines = [columns, ["---"] * len(columns), *rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def facts(rows: Iterable[tuple[str, object]]) -> str:
    """Make a list of labels and texts; further lines of a text become items below it."""
    told = ""
    for label, content in rows:
        first, *more = str(content).split("\n")
        told += f"* **{label}** {escaped(first)}\n" + "".join(f"  * {escaped(each.strip())}\n" for each in more)
    return told


def groups_in_markdown(groups: Groups) -> str:
    """Return a row for each group, then what was unreadable."""
    if not groups.groups:
        return f"{escaped(no_group_text(groups))}\n"
    columns = ("Group", "State", "Owner", "Generation", "Members", "Static", "Rebalances", "Last incident", "Why")
    told = table(columns, map(_group, groups.groups))
    told += "".join(
        f"\n{escaped(line.group_id)} is quarantined: {escaped(reason)}\n"
        for line in groups.groups
        for reason in line.quarantined
    )
    told += "".join(
        f"\n{escaped(line.group_id)}: {line.missing_events} events are no longer in the log\n"
        for line in groups.groups
        if line.missing_events
    )
    told += "".join(
        f"\n{escaped(line.group_id)}: {line.unknown_events} events of unknown types\n"
        for line in groups.groups
        if line.unknown_events
    )
    return told + "".join(f"\n{escaped(reason)}\n" for reason in groups.unreadable_keys)


def _group(line: GroupLine) -> Sequence[str]:
    at_least = f"{line.rebalances}{'+' if line.missing_events else ''}"
    numbers = (line.generation_id, line.members, line.static_members, at_least)
    return (
        escaped(line.group_id),
        escaped(line.state),
        line.owner,
        *map(escaped, numbers),
        moment(line.last_at),
        escaped(line.last_text if line.last_incident is None else line.last_incident.headline),
    )


def state_in_markdown(state: StateAt) -> str:
    """Return a heading, the group and its members."""
    protocol = " / ".join(filter(None, (state.protocol_type, state.protocol_name))) or None
    asked_for = "" if state.asked_for is None else f", asked for {moment(state.asked_for)}"
    facts = [
        f"as of {moment(state.at)}, seq {state.seq}{asked_for}",
        f"{state.state} since {moment(state.state_since)}",
        f"generation {state.generation_id}, protocol {escaped(protocol)}, coordinator {escaped(state.coordinator)}",
        *(f"{escaped(key)}={escaped(value)}" for key, value in state.configs.items()),
        *(f"expected: {escaped(each.group_instance_id)}" for each in state.registrations),
        *(f"missing: {escaped(note)}" for note in state.notes),
    ]
    told = f"## {escaped(state.group_id)}\n\n" + "".join(f"* {fact}\n" for fact in facts)
    if not state.members:
        return f"{told}\nNo members.\n"
    columns = ("Member", "Instance", "Role", "Client id", "Host", "Session", "Assignment")
    return f"{told}\n{table(columns, map(_member, state.members))}"


def _member(member: MemberState) -> Sequence[str]:
    role = f"{member.role.lower()}{', leader' if member.is_leader else ''}{', retiring' if member.retiring else ''}"
    unread = f"{member.assignment_bytes} bytes that are not a consumer assignment"
    return (
        escaped(name(member)),
        escaped(member.group_instance_id),
        role,
        escaped(member.client_id),
        escaped(host(member.client_host)),
        setting(member.session_timeout_ms),
        unread if member.assignment is None else escaped(partitions(member.assignment) or "nothing"),
    )
