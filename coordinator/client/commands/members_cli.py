"""`muster members ...`: parses options, calls one function of `coordinator.client`, prints the result."""

from collections.abc import Mapping, Sequence
from typing import Annotated

import typer
from rich.console import Console

from muster.coordinator.client.commands.answer import (
    HERE,
    UNUSABLE,
    AnswerFormat,
    BootstrapOption,
    FormatOption,
    GroupArgument,
    InstancesArgument,
    NamesArgument,
    TimeoutOption,
    ask,
    fail,
    show,
    show_done,
    show_results,
)
from muster.coordinator.client.commands.view import print_configs, print_coordinator, print_members
from muster.durations import DURATION_OR_MS, BadDuration, read_duration
from muster.events.log.options import KafkaConfigOption

app = typer.Typer(
    name="members",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    help=(
        "List, register, retire, promote and remove the members of a group.\n\n"
        "\b\n"
        "Examples:\n\n"
        "    muster members list orders\n"
        "    muster members add orders web-9 web-10 --timeout 10m\n"
        "    muster members retire orders web-1 web-2\n"
        "    muster members rebalance orders\n"
        "    muster members config orders target.group.size=6\n\n"
        "Requests go to the group's coordinator, which the process at --bootstrap or MUSTER_BOOTSTRAP names. All "
        "commands but list and remove use configs of the group: any client that can alter configs can do the same.\n\n"
        "Exit codes: 0 done; 1 refused, with the reason for each member; 2 invalid usage, or no such coordinator."
    ),
)


@app.command("add")
def add(
    group: GroupArgument,
    instances: InstancesArgument,
    timeout: TimeoutOption = None,
    bootstrap: BootstrapOption = HERE,
    kafka_config: KafkaConfigOption = None,
    form: FormatOption = AnswerFormat.TABLE,
) -> None:
    """Register static members that will join (KIP-469): one rebalance for all, after the last one has joined.

    Register them first, then start them. The group keeps its assignment until the last one has joined. At the timeout,
    missing members are no longer expected, and the group rebalances once with those that have joined.

    \b
    Example:

        muster members add orders web-9 web-10 web-11 --timeout 10m
    """
    results = ask(
        bootstrap, kafka_config, lambda admin: admin.add_members_to_group(group, instances, timeout_ms=timeout)
    )
    show_results(group, results, "expected", form)


@app.command("withdraw")
def withdraw(
    group: GroupArgument,
    instances: InstancesArgument,
    bootstrap: BootstrapOption = HERE,
    kafka_config: KafkaConfigOption = None,
    form: FormatOption = AnswerFormat.TABLE,
) -> None:
    """Withdraw the registrations of members that have not joined.

    \b
    Example:

        muster members withdraw orders web-11
    """
    results = ask(bootstrap, kafka_config, lambda admin: admin.withdraw_registrations(group, instances))
    show_results(group, results, "no longer expected", form)


@app.command("retire")
def retire(
    group: GroupArgument,
    names: NamesArgument,
    timeout: TimeoutOption = None,
    bootstrap: BootstrapOption = HERE,
    kafka_config: KafkaConfigOption = None,
    form: FormatOption = AnswerFormat.TABLE,
) -> None:
    """Announce that members will leave: the group rebalances once, after all of them have left.

    Announce them first, then stop them. Those that are still members at the timeout are removed.

    \b
    Example:

        muster members retire orders web-7 web-8 --timeout 5m
    """
    results = ask(bootstrap, kafka_config, lambda admin: admin.retire_members(group, names, timeout_ms=timeout))
    show_results(group, results, "retiring", form)


@app.command("keep")
def keep(
    group: GroupArgument,
    names: NamesArgument,
    bootstrap: BootstrapOption = HERE,
    kafka_config: KafkaConfigOption = None,
    form: FormatOption = AnswerFormat.TABLE,
) -> None:
    """Cancel the retirement of members, so that they stay.

    \b
    Example:

        muster members keep orders web-8
    """
    show_results(group, ask(bootstrap, kafka_config, lambda admin: admin.keep_members(group, names)), "kept", form)


@app.command("promote")
def promote(
    group: GroupArgument,
    names: Annotated[list[str] | None, typer.Argument(metavar="ID", help="Instance ids, or member ids.")] = None,
    everybody: Annotated[bool, typer.Option("--all", help="Promote all learners.")] = False,
    bootstrap: BootstrapOption = HERE,
    kafka_config: KafkaConfigOption = None,
    form: FormatOption = AnswerFormat.TABLE,
) -> None:
    """Promote learners to active members now: they get partitions, in one rebalance.

    \b
    Examples:

        muster members promote orders web-9 web-10
        muster members promote orders --all
    """
    if names and everybody:
        fail("name learners, or give --all, not both", UNUSABLE)
    if not names and not everybody:
        fail("name the learners to promote, or give --all", UNUSABLE)
    if everybody:
        ask(bootstrap, kafka_config, lambda admin: admin.promote_all_learners(group))
        show_done(group, ["its learners are promoted"], form)
    else:
        results = ask(bootstrap, kafka_config, lambda admin: admin.promote_learners(group, names or []))
        show_results(group, results, "promoted", form)


@app.command("rebalance")
def rebalance(
    group: GroupArgument,
    force: Annotated[bool, typer.Option("--force", help="Rebalance even if the group has dynamic members.")] = False,
    bootstrap: BootstrapOption = HERE,
    kafka_config: KafkaConfigOption = None,
    form: FormatOption = AnswerFormat.TABLE,
) -> None:
    """Rebalance a stable group now.

    \b
    Example:

        muster members rebalance orders
    """
    ask(bootstrap, kafka_config, lambda admin: admin.rebalance_group(group, force=force))
    show_done(group, ["rebalances now"], form)


@app.command("remove")
def remove(
    group: GroupArgument,
    names: NamesArgument,
    reason: Annotated[
        str | None,
        typer.Option("--reason", metavar="TEXT", help="The reason, recorded in the group's history (KIP-800)."),
    ] = None,
    bootstrap: BootstrapOption = HERE,
    kafka_config: KafkaConfigOption = None,
    form: FormatOption = AnswerFormat.TABLE,
) -> None:
    """Remove members at once (KIP-345). A member whose process still runs rejoins, or is fenced.

    \b
    Example:

        muster members remove orders web-3 --reason "disk full"
    """
    results = ask(bootstrap, kafka_config, lambda admin: admin.remove_members_from_group(group, names, reason=reason))
    show_results(group, results, "removed", form)


@app.command("list")
def list_command(
    group: GroupArgument,
    bootstrap: BootstrapOption = HERE,
    kafka_config: KafkaConfigOption = None,
    form: FormatOption = AnswerFormat.TABLE,
) -> None:
    """List members and expected instances, with their standing and the time left in their session.

    \b
    Examples:

        muster members list orders
        muster members list orders --format json | jq -r '.members[] | [.group_instance_id, .standing] | @tsv'
    """
    from muster.coordinator.client.group_moves import MOVING, list_with_coordinator
    from muster.coordinator.group.configs import UPSTREAM

    coordinator, members = ask(bootstrap, kafka_config, lambda admin: list_with_coordinator(admin, group))

    where = coordinator.coordinator

    def table(console: Console) -> None:
        if where != MOVING:  # its members are in neither group until they rejoin
            print_members(group, members, console, is_upstream=where == UPSTREAM)
        print_coordinator(group, coordinator, console)

    show({"group_id": group, "coordinator": where, "members": members}, form, table)


@app.command("config")
def config(
    group: GroupArgument,
    changes: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="KEY=VALUE",
            help="New values, e.g. target.group.size=6; KEY= restores the default. Without any, the configs are shown.",
        ),
    ] = None,
    bootstrap: BootstrapOption = HERE,
    kafka_config: KafkaConfigOption = None,
    form: FormatOption = AnswerFormat.TABLE,
) -> None:
    """Show the configs of a group, or change some of them; if one change is refused, none is made.

    Configs whose name ends in .ms accept durations such as 30s as well as milliseconds.

    \b
    Examples:

        muster members config orders
        muster members config orders target.group.size=6
        muster members config orders members.expansion.delay.ms=30s target.group.size=
    """
    from muster.coordinator.client.group_moves import alter_with_coordinator, describe_with_coordinator
    from muster.coordinator.group.configs import UPSTREAM

    if changes:
        wanted = _assignments(changes)
        coordinator = ask(bootstrap, kafka_config, lambda admin: alter_with_coordinator(admin, group, wanted))
        lines = [
            f"{name} is back to its default" if value is None else f"{name}={value}" for name, value in wanted.items()
        ]
        if coordinator is not None and coordinator.coordinator == UPSTREAM:
            lines.append(f"{coordinator.text}; this takes effect when Muster adopts the group")
        show_done(group, lines, form)
        return
    coordinator, configs = ask(bootstrap, kafka_config, lambda admin: describe_with_coordinator(admin, group))

    def table(console: Console) -> None:
        print_configs(configs, console)
        print_coordinator(group, coordinator, console)

    where = None if coordinator is None else coordinator.coordinator
    show({"group_id": group, "coordinator": where, "configs": configs}, form, table)


def _assignments(texts: Sequence[str]) -> Mapping[str, str | None]:
    """Parse `KEY=VALUE` and `KEY=`; durations for configs in ms become numbers."""
    wanted: dict[str, str | None] = {}
    for text in texts:
        name, equals, value = (part.strip() for part in text.partition("="))
        if not name or not equals:
            fail(f"{text!r} should be KEY=VALUE, or KEY= to restore the default", UNUSABLE)
        if name in wanted:
            fail(f"{name} is given twice", UNUSABLE)
        wanted[name] = _in_ms(name, value) if value and name.endswith(".ms") else value or None
    return wanted


def _in_ms(name: str, value: str) -> str:
    """Convert a duration to a number of ms; the coordinator checks its range."""
    if value.removeprefix("-").isdecimal():
        return value
    try:
        return str(read_duration(value))
    except BadDuration:
        fail(f"{name}={value}: {DURATION_OR_MS}", UNUSABLE)
