"""`muster groups shadows`: list what Muster has left in a cluster, and remove it."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from muster.coordinator.commands.members.answer import REFUSED, AnswerFormat, ask, complain, confirmed, show
from muster.coordinator.commands.members.options import HERE, BootstrapOption, FormatOption
from muster.coordinator.commands.members.view import printable
from muster.events.log.options import KafkaConfigOption

if TYPE_CHECKING:
    from muster.coordinator.admin.group_admin import MemberResult
    from muster.coordinator.admin.shadows import LeftShadow

COMMAND = "muster groups shadows"


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
    from muster.coordinator.admin.shadows import remove_shadows, shadows_in  # noqa: PLC0415 -- as in `ask`

    found = ask(bootstrap, kafka_config, shadows_in, command=COMMAND)
    if form is not AnswerFormat.JSON:
        for each in found:
            typer.echo(f"{printable(each.group_id)}: {printable(each.name)}, of {printable(each.client_host)}")
        yes = bool(found) and confirmed("Remove them?", yes=yes)
    results: Sequence[tuple[LeftShadow, MemberResult]] = ()
    if yes and found:
        results = ask(bootstrap, kafka_config, lambda admin: remove_shadows(admin, found), command=COMMAND)
    left = [(shadow, result) for shadow, result in results if not result.done]
    said = f"{len(results) - len(left)} of {len(found)} removed"
    if not found:
        said = "There are no shadows in this cluster."
    elif not yes:
        said = "Nothing was changed; --yes removes them."
    told = {"shadows": msgspec.to_builtins(found), "removed": len(results) - len(left)}
    show(told, form, lambda _console: typer.echo(said))
    for shadow, result in left:
        complain(f"{shadow.group_id}: {result.reason}", COMMAND)
    if left:
        raise typer.Exit(REFUSED)
