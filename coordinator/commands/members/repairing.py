"""`muster groups repair`: print what of a quarantined group is lost, ask, and have it recreated."""

from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from muster.coordinator.commands.members.answer import REFUSED, AnswerFormat, ask, confirmed, fail, show
from muster.coordinator.commands.members.options import HERE, BootstrapOption, FormatOption, GroupArgument
from muster.coordinator.commands.members.view import printable
from muster.events.log.options import KafkaConfigOption

if TYPE_CHECKING:
    from muster.coordinator.group.outcomes import GroupDamage, UnreadableRecord

COMMAND = "muster groups repair"


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
    from muster.coordinator.admin.repairing import damage_of, repair_group  # noqa: PLC0415 -- as in `ask`

    damage = ask(bootstrap, kafka_config, lambda admin: damage_of(admin, group), command=COMMAND)
    if damage is None:
        fail(f"group {printable(group)} is not quarantined: there is nothing to repair", REFUSED, COMMAND)
    if form is not AnswerFormat.JSON:
        typer.echo("\n".join(_lines(group, damage)))
        yes = confirmed("Recreate the group?", yes=yes)
    if yes:
        ask(bootstrap, kafka_config, lambda admin: repair_group(admin, group), command=COMMAND)
    said = f"{printable(group)}: repaired, its members join again" if yes else "Nothing was changed; --yes does it."
    show({"group_id": group, "done": yes, **msgspec.to_builtins(damage)}, form, lambda _console: typer.echo(said))


def _lines(group: str, damage: "GroupDamage") -> list[str]:
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
