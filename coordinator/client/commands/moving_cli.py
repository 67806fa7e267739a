"""`muster adopt` and `muster release`: print what the members will see, move the groups, print the progress."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import msgspec
import typer

from muster.coordinator.client.commands.answer import (
    HERE,
    REFUSED,
    UNUSABLE,
    AnswerFormat,
    BootstrapOption,
    FormatOption,
    ask,
    complain,
    fail,
    show,
)
from muster.coordinator.group.configs import MUSTER, UPSTREAM
from muster.coordinator.group.move_text import done, late, progress
from muster.durations import duration
from muster.events.log.options import KafkaConfigOption

if TYPE_CHECKING:
    from muster.coordinator.client.group_admin import GroupAdmin
    from muster.coordinator.group.outcomes import GroupMove

adopting = typer.Typer(add_completion=False, rich_markup_mode="markdown")
releasing = typer.Typer(add_completion=False, rich_markup_mode="markdown")

GroupsArgument = Annotated[list[str], typer.Argument(metavar="GROUP", help="Group ids, moved one after another.")]
DryRunOption = Annotated[
    bool, typer.Option("--dry-run", help="Only print what the members would notice, and whether the move could begin.")
]

_WHERE = {MUSTER: "this Muster", UPSTREAM: "the cluster upstream"}
_HOW = {
    MUSTER: "each is removed from its group upstream at its next heartbeat",
    UPSTREAM: "each learns of it in the response to its next heartbeat",
}


@adopting.command("adopt")
def adopt(
    groups: GroupsArgument,
    *,
    timeout: Annotated[
        int | None,
        typer.Option(
            "--timeout",
            metavar="DURATION",
            parser=duration,
            help="When to give up an adoption: 30s, 5m. Longer than members work on one batch. [default: 60s]",
        ),
    ] = None,
    dry_run: DryRunOption = False,
    bootstrap: BootstrapOption = HERE,
    kafka_config: KafkaConfigOption = None,
    form: FormatOption = AnswerFormat.TABLE,
) -> None:
    """Move live groups from the upstream cluster to Muster; their members must be connected to the sidecar.

    Muster adopts a group by itself as soon as the group has no members. This command is for groups that always have
    some: each member is removed upstream at its next request, and all rejoin at Muster, in one rebalance. The move is
    refused if some members are connected to the cluster directly.

    Exit codes: 0 all moved; 1 a move was refused or given up, and the groups after it were not moved; 2 invalid usage,
    or no such sidecar.

    \b
    Examples:

        muster adopt orders --dry-run
        muster adopt orders payments --timeout 5m
    """
    _Moving("muster adopt", MUSTER, bootstrap, kafka_config, form, timeout_ms=timeout).run(groups, dry_run=dry_run)


@releasing.command("release")
def release(
    groups: Annotated[
        list[str] | None, typer.Argument(metavar="GROUP", help="Group ids, moved one after another.")
    ] = None,
    *,
    everything: Annotated[
        bool, typer.Option("--all", help="Release all groups that have members at this sidecar.")
    ] = False,
    dry_run: DryRunOption = False,
    bootstrap: BootstrapOption = HERE,
    kafka_config: KafkaConfigOption = None,
    form: FormatOption = AnswerFormat.TABLE,
) -> None:
    """Move groups from a sidecar back to the upstream cluster, for good; their members may stay connected.

    All members rejoin upstream in one rebalance, once every one of them has revoked its partitions. From then on the
    group belongs to the cluster, even after a restart, until it is adopted again.

    Exit codes: 0 all moved; 1 a move was refused or given up, and the groups after it were not moved; 2 invalid usage,
    or no such sidecar.

    \b
    Examples:

        muster release orders --dry-run
        muster release orders payments
        muster release --all
    """
    if groups and everything:
        fail("name groups, or give --all, not both", UNUSABLE, "muster release")
    if not groups and not everything:
        fail("name the groups to release, or give --all", UNUSABLE, "muster release")
    if everything:
        groups = _groups_of_muster(bootstrap, kafka_config)
    _Moving("muster release", UPSTREAM, bootstrap, kafka_config, form).run(groups or [], dry_run=dry_run)


def _groups_of_muster(bootstrap: str, kafka_config: Sequence[str] | None) -> list[str]:
    """Return the groups for `release --all`."""
    from muster.coordinator.client.group_moves import groups_of_muster

    here = ask(bootstrap, kafka_config, groups_of_muster, command="muster release")
    if not here.sees_all:
        lacks = f"{here.user} lacks the ACL Allow DESCRIBE on GROUP *"
        if not here.group_ids:
            fail(f"no group was found, but {lacks}, and may not see all groups", REFUSED, "muster release")
        complain(f"{lacks}: there may be more groups than these", "muster release")
    elif not here.group_ids:
        complain("no group has members at this sidecar: there is nothing to release", "muster release")
    return here.group_ids


class _Moving:
    """One run of a command. `to`: MUSTER or UPSTREAM."""

    def __init__(
        self,
        command: str,
        to: str,
        bootstrap: str,
        kafka_config: Sequence[str] | None,
        form: AnswerFormat,
        *,
        timeout_ms: int | None = None,
    ) -> None:
        self._command, self._to = command, to
        self._bootstrap, self._kafka_config = bootstrap, kafka_config
        self._is_json = form is AnswerFormat.JSON
        self._timeout_ms = timeout_ms

    def run(self, groups: Sequence[str], *, dry_run: bool) -> None:
        """Move one group after the other; after a refusal, print the moves before it and end the command."""
        done: list[Mapping[str, Any]] = []
        for group_id in dict.fromkeys(groups):
            result = ask(
                self._bootstrap,
                self._kafka_config,
                lambda admin, group_id=group_id: self._move(admin, group_id, dry_run=dry_run),  # type: ignore[misc]
                command=self._command,
            )
            done.append(result)
            if not result["done"] and not dry_run:
                self._end(done, result)
        self._show(done)

    async def _move(self, admin: "GroupAdmin", group_id: str, *, dry_run: bool) -> Mapping[str, Any]:
        from muster.coordinator.client.group_moves import count_movers, move_group, try_move
        from muster.coordinator.group.outcomes import MoveState

        await try_move(admin, group_id, self._to)
        members = await count_movers(admin, group_id, self._to)
        near = await admin.groups_like(group_id) if members is None else ""
        self._print(f"{group_id}: {_what_they_see(members, self._to)}{near}")
        if dry_run:
            return {"group_id": group_id, "to": self._to, "done": False, "members": members or 0}
        move = await move_group(
            admin, group_id, self._to, timeout_ms=self._timeout_ms, report=lambda move: self._progress(group_id, move)
        )
        if move.state is MoveState.DONE and members is not None:
            self._print(f"{group_id}: {_done(move, self._to)}")
        return {"group_id": group_id, "done": move.state is MoveState.DONE, **msgspec.to_builtins(move)}

    def _progress(self, group_id: str, move: "GroupMove") -> None:
        if move.members:
            self._print(f"{group_id}: {progress(move)}")

    def _end(self, done: Sequence[Mapping[str, Any]], result: Mapping[str, Any]) -> NoReturn:
        self._show(done)
        complain(
            f"{result['group_id']}: given up after {result['took_ms'] / 1000:.1f} s: {result['reason']}", self._command
        )
        raise typer.Exit(REFUSED)

    def _print(self, line: str) -> None:
        if not self._is_json:
            typer.echo(line)

    def _show(self, done: Sequence[Mapping[str, Any]]) -> None:
        if self._is_json:
            show({"groups": done}, AnswerFormat.JSON, lambda _console: None)


def _what_they_see(members: int | None, to: str) -> str:
    if members is None:
        return f"there is no such group; if it is created, {_WHERE[to]} coordinates it"
    if not members:
        return f"no member has to rejoin; new members join at {_WHERE[to]}"
    who = "its only member rejoins" if members == 1 else f"its {members} members rejoin"
    return (
        f"{who} at {_WHERE[to]}: {_HOW[to]}, and revokes its partitions; once the last one has, there is one "
        "rebalance. Consumption pauses for at most the longest heartbeat interval, the batches that members still "
        "work on, and a join phase; uncommitted records are consumed again"
    )


def _done(move: "GroupMove", to: str) -> str:
    if not move.members:
        return f"coordinated by {_WHERE[to]}"
    follows = ", the join phase follows" if move.back else ""
    named = f"; {late(move)}" if move.late else ""
    return f"coordinated by {_WHERE[to]}: {done(move)} after {move.took_ms / 1000:.1f} s{follows}{named}"
