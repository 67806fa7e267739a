"""The tables of `muster status`: findings first, then the processes, then the partitions. They fit 80 columns."""

from collections.abc import Sequence
from datetime import timedelta

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from muster.coordinator.client.commands.status_asking import Asked, Unanswered
from muster.coordinator.client.commands.status_findings import Finding, Severity
from muster.coordinator.client.commands.view import printable
from muster.coordinator.observability.status import ProcessStatus

_ADDRESSES = {"Owner", "Standby", "Not yet served by"}
"""The columns with addresses, which must not wrap, so that they can be copied."""
_STYLES = {Severity.UNANSWERED: "bold red", Severity.PROBLEM: "red", Severity.NOTE: "yellow"}


def print_status(asked: Sequence[Asked], found: Sequence[Finding], console: Console) -> None:
    """Print everything."""
    _print_findings(found, console)
    _print_processes(asked, console)
    answered = [(each.address, each.answer) for each in asked if not isinstance(each.answer, Unanswered)]
    _print_partitions(answered, console)
    _print_waiting(answered, console)
    _print_standbys(answered, console)
    for address, status in answered:
        if status.shadows is not None:
            missing = f", {status.shadows.missing_count} missing" if status.shadows.missing_count else ""
            what = "shadow" if status.shadows.present == 1 else "shadows"
            console.print(_cell(f"{address}: {status.shadows.present} {what} in the cluster{missing}"))


def _print_findings(found: Sequence[Finding], console: Console) -> None:
    if not found:
        console.print(Text("All is well.", style="green"))
    for each in found:
        who = f"{each.process}: " if each.process else ""
        console.print(_cell(f"{each.severity.value.upper()}  {who}{each.what}", _STYLES[each.severity]))
        console.print(_cell(f"  -> {each.way_out}"))
    console.print()


def _print_processes(asked: Sequence[Asked], console: Console) -> None:
    table = _table("Process", "Node", "State", "Up", "Owns", "Groups", "Members", "Version")
    for each in asked:
        status = each.answer
        if isinstance(status, Unanswered):
            table.add_row(_cell(each.address), "", _cell("no answer", "bold red"))
            continue
        ownership = status.ownership
        is_good = status.not_ready is None and status.not_well is None
        table.add_row(
            _cell(each.address),
            " ".join(["sidecar"] * (status.mode == "sidecar") + [str(status.node_id)] * (status.node_id is not None)),
            _cell("ready", "green") if is_good else _cell("not ready", "red"),
            _up(status.uptime_ms),
            f"{len(ownership.owned)} of {ownership.log_partitions}",
            str(sum(sum(states.values()) for states in ownership.groups.values())),
            str(sum(ownership.members.values())),
            _cell(status.version),
        )
    console.print(table)
    console.print()


def _print_partitions(answered: Sequence[tuple[str, ProcessStatus]], console: Console) -> None:
    rows = [(owned.partition, address, owned) for address, status in answered for owned in status.ownership.owned]
    if not rows:
        return
    table = _table("Partition", "Owner", "Epoch", "Lease", "Groups", "Members", "Waiting")
    for number, address, owned in sorted(rows, key=lambda row: row[:2]):
        lease = "-" if owned.lease_left_ms is None else f"{owned.lease_left_ms / 1000:.1f} s"
        table.add_row(
            str(number),
            _cell(address),
            str(owned.epoch),
            _cell(lease, "red" if owned.lease_left_ms == 0 else ""),
            str(owned.groups),
            str(owned.members),
            str(owned.parked),
        )
    console.print(table)
    console.print()


def _print_waiting(answered: Sequence[tuple[str, ProcessStatus]], console: Console) -> None:
    rows = [(waiting, address) for address, status in answered for waiting in status.ownership.waiting]
    if not rows:
        return
    table = _table("Partition", "Not yet served by", "It waits for")
    for waiting, address in sorted(rows, key=lambda row: (row[0].partition, row[1])):
        table.add_row(str(waiting.partition), _cell(address), _cell(waiting.reason, "red"))
    console.print(table)
    console.print()


def _print_standbys(answered: Sequence[tuple[str, ProcessStatus]], console: Console) -> None:
    rows = [(standby, address) for address, status in answered for standby in status.ownership.standbys]
    if not rows:
        return
    table = _table("Partition", "Standby", "Behind", "Lag")
    for standby, address in sorted(rows, key=lambda row: (row[0].partition, row[1])):
        table.add_row(
            str(standby.partition),
            _cell(address),
            "-" if standby.lag_records is None else f"{standby.lag_records} records",
            "-" if standby.lag_ms is None else f"{standby.lag_ms / 1000:.1f} s",
        )
    console.print(table)
    console.print()


def _up(uptime_ms: int) -> str:
    """Format as `3 d 04:12`, or `04:12:05` in the first day."""
    up = timedelta(seconds=uptime_ms // 1000)
    hours, rest = divmod(up.seconds, 3600)
    minutes, seconds = divmod(rest, 60)
    return f"{up.days} d {hours:02}:{minutes:02}" if up.days else f"{hours:02}:{minutes:02}:{seconds:02}"


def _table(*columns: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold", show_edge=False, padding=0)
    for place, column in enumerate(columns):
        is_address = place == 0 or column in _ADDRESSES
        table.add_column(column, overflow="fold", no_wrap=is_address)
    return table


def _cell(content: str, style: str = "") -> Text:
    """Return a text without markup and control characters."""
    return Text(printable(content), style=style)
