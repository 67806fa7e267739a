"""`muster groups`: repairs a quarantined group; lists and removes the shadows that Muster left in a cluster."""

from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from muster.coordinator.client.commands.answer import (
    HERE,
    REFUSED,
    AnswerFormat,
    BootstrapOption,
    FormatOption,
    GroupArgument,
    ask,
    confirmed,
    fail,
    show,
)
from muster.coordinator.client.commands.view import printable
from muster.events.log.options import KafkaConfigOption

if TYPE_CHECKING:
    from muster.coordinator.group.outcomes import GroupDamage, UnreadableRecord

from collections.abc import Sequence
from typing import TYPE_CHECKING

from muster.coordinator.client.commands.answer import complain

if TYPE_CHECKING:
    from muster.coordinator.client.group_admin import MemberResult
    from muster.coordinator.client.left_shadows import LeftShadow

REPAIR = "muster groups repair"
SHADOWS = "muster groups shadows"

app = typer.Typer(
    name="groups",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    help="Repair groups that cannot be served; remove shadows that a former Muster left in a cluster.",
)


@app.command("repair")
def repair(
    group: GroupArgument,
    *,
    yes: Annotated[bool, typer.Option("--yes", help="Repair without asking for confirmation.")] = False,
    bootstrap: BootstrapOption = HERE,
    kafka_config: KafkaConfigOption = None,
    form: FormatOption = AnswerFormat.TABLE,
) -> None:
    """Repair a quarantined group from its readable records, so that it is served again.

    Muster quarantines a group that has an unreadable record: its members get errors that make them retry. The command
    prints the unreadable records and what can be kept. With --yes, or after a confirmation on the terminal, it
    recreates the group from what is left: without members, in its next generation, with its configs and registrations.
    The members rejoin in one rebalance. Committed offsets are kept. A record of an unknown type may come from a newer
    Muster: start that version instead.

    The running coordinator of the group makes the change, and records in the event log who requested it.

    Exit codes: 0 repaired, or only shown; 1 the group is not quarantined, or the repair was refused; 2 invalid usage,
    or no such coordinator.

    \b
    Examples:

        muster groups repair orders
        muster groups repair orders --yes --bootstrap 127.0.0.1:9092
    """

    damage = ask(bootstrap, kafka_config, lambda admin: admin.describe_damage(group), command=REPAIR)
    if damage is None:
        fail(f"group {printable(group)} is not quarantined: there is nothing to repair", REFUSED, REPAIR)
    if form is not AnswerFormat.JSON:
        typer.echo("\n".join(_damage_lines(group, damage)))
        yes = confirmed("Recreate the group?", yes=yes)
    if yes:
        ask(bootstrap, kafka_config, lambda admin: admin.repair_group(group), command=REPAIR)
    said = (
        f"{printable(group)}: repaired; its members rejoin"
        if yes
        else ("Nothing was changed; give --yes to repair the group.")
    )
    show({"group_id": group, "done": yes, **msgspec.to_builtins(damage)}, form, lambda _console: typer.echo(said))


def _damage_lines(group: str, damage: "GroupDamage") -> list[str]:
    number = len(damage.unreadable)
    what = "1 record" if number == 1 else f"{number} records"
    if not number:
        what = "a record that has since been replaced"
    name = printable(group)
    return [
        f"{name}: quarantined; {what} in partition {damage.partition} cannot be read",
        *(f"  lost: {_entity(each)}, offset {each.offset}: {printable(each.reason)}" for each in damage.unreadable),
        f"  kept: {_kept(damage)}, and its committed offsets",
        f"  {_rejoining(damage)}",
    ]


def _entity(record: "UnreadableRecord") -> str:
    name = printable(record.entity_id)
    return {
        "Group": "the group's own record (generation, state, protocol)",
        "StaticMember": f"the static member {name}",
        "DynamicMember": f"the member {name}",
        "Registration": f"the registration of {name}",
        "Settings": "the group's configs",
    }[record.kind]


def _kept(damage: "GroupDamage") -> str:
    kept = ["its id" if damage.generation_id is None else f"generation {damage.generation_id}"]
    kept += [f"{name}={value}" for name, value in damage.configs.items()]
    if damage.registered:
        kept.append(f"the registration of {', '.join(map(printable, damage.registered))}")
    return ", ".join(kept)


def _rejoining(damage: "GroupDamage") -> str:
    if not damage.members:
        return "no member's record can be read; running members rejoin"
    return f"all members rejoin in one rebalance; {damage.members} of their records can be read"


@app.command("shadows")
def shadows(
    *,
    yes: Annotated[bool, typer.Option("--yes", help="Remove them without asking for confirmation.")] = False,
    bootstrap: BootstrapOption = HERE,
    kafka_config: KafkaConfigOption = None,
    form: FormatOption = AnswerFormat.TABLE,
) -> None:
    """List the shadows that a Muster which is gone for good left in a cluster, and remove them.

    A Muster in front of a cluster joins each group that it coordinates upstream too, as a static member, the shadow.
    When Muster is gone, its shadows stay for up to 30 minutes and keep out clients that connect to the brokers
    directly. The command lists them and, with --yes or after a confirmation on the terminal, removes them. Give the
    addresses of brokers, not of Muster, and stop every Muster first: a running one takes its shadows back. To hand
    groups back while Muster runs, use `muster release`, which costs one rebalance and keeps no client out. The user
    needs DESCRIBE, DESCRIBE_CONFIGS and READ on the groups.

    Exit codes: 0 removed, only listed, or none found; 1 one could not be removed; 2 invalid usage, or no such cluster.

    \b
    Examples:

        muster groups shadows --bootstrap kafka-1:9092
        muster groups shadows --bootstrap kafka-1:9092 --yes
    """
    from muster.coordinator.client.left_shadows import remove_shadows, shadows_in

    found = ask(bootstrap, kafka_config, shadows_in, command=SHADOWS)
    if form is not AnswerFormat.JSON:
        for each in found:
            typer.echo(f"{printable(each.group_id)}: {printable(each.name)}, of {printable(each.client_host)}")
        yes = bool(found) and confirmed("Remove them?", yes=yes)
    results: Sequence[tuple[LeftShadow, MemberResult]] = ()
    if yes and found:
        results = ask(bootstrap, kafka_config, lambda admin: remove_shadows(admin, found), command=SHADOWS)
    left = [(shadow, result) for shadow, result in results if not result.done]
    said = f"{len(results) - len(left)} of {len(found)} removed"
    if not found:
        said = "There are no shadows in this cluster."
    elif not yes:
        said = "Nothing was changed; give --yes to remove them."
    told = {"shadows": msgspec.to_builtins(found), "removed": len(results) - len(left)}
    show(told, form, lambda _console: typer.echo(said))
    for shadow, result in left:
        complain(f"{shadow.group_id}: {result.reason}", SHADOWS)
    if left:
        raise typer.Exit(REFUSED)
