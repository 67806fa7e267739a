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
    help="Repair groups that cannot be served; remove what a Muster that is gone has left in a cluster.",
)


@app.command("repair")
def repair(
    group: GroupArgument,
    *,
    yes: Annotated[bool, typer.Option("--yes", help="Do it, without asking.")] = False,
    bootstrap: BootstrapOption = HERE,
    kafka_config: KafkaConfigOption = None,
    form: FormatOption = AnswerFormat.TABLE,
) -> None:
    """Recreate a quarantined group from its readable records, so that it is served again.

    A group with a record that cannot be read is not served: its members are told to try again. The command prints these
    records, and what is left. With --yes, or a yes on the terminal, the group is recreated from what is left: empty,
    in its next generation, with its configs and registrations. Its members join again, in one rebalance. Committed
    offsets stay. A record of an unknown type may have been written by a newer Muster: start that one instead.

    The running coordinator of the group does it, and records in the event log who requested it.

    Exit codes: 0 repaired, or only looked; 1 the group is not quarantined, or it was refused; 2 wrong use, or no such
    coordinator.

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
    said = f"{printable(group)}: repaired, its members join again" if yes else "Nothing was changed; --yes does it."
    show({"group_id": group, "done": yes, **msgspec.to_builtins(damage)}, form, lambda _console: typer.echo(said))


def _damage_lines(group: str, damage: "GroupDamage") -> list[str]:
    number = len(damage.unreadable)
    what = "1 record" if number == 1 else f"{number} records"
    if not number:
        what = "a record that was replaced since"
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
        return "none of its members can be read; those that run join again"
    return f"all members, {damage.members} of which can be read, join again in one rebalance"


@app.command("shadows")
def shadows(
    *,
    yes: Annotated[bool, typer.Option("--yes", help="Remove them, without asking.")] = False,
    bootstrap: BootstrapOption = HERE,
    kafka_config: KafkaConfigOption = None,
    form: FormatOption = AnswerFormat.TABLE,
) -> None:
    """List Muster's shadows in a cluster, and remove them, when Muster itself is gone for good.

    In each group that it has, a Muster in front of a cluster is a static member, the shadow. When Muster is gone it
    stays for up to 30 minutes, and keeps clients out that come to the brokers directly. The command lists them, and
    with --yes, or a yes on the terminal, removes them. Name the brokers, not Muster, and stop every Muster before: one
    that runs takes its shadows again. A Muster that runs hands groups back by `muster release`, with one rebalance, and
    nobody is kept out. The user needs DESCRIBE, DESCRIBE_CONFIGS and READ on the groups.

    Exit codes: 0 removed, only listed, or there are none; 1 one could not be removed; 2 wrong use, or no such cluster.

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
        said = "Nothing was changed; --yes removes them."
    told = {"shadows": msgspec.to_builtins(found), "removed": len(results) - len(left)}
    show(told, form, lambda _console: typer.echo(said))
    for shadow, result in left:
        complain(f"{shadow.group_id}: {result.reason}", SHADOWS)
    if left:
        raise typer.Exit(REFUSED)
