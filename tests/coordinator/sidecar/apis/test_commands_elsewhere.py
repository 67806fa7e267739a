"""Commands that reach a Kafka broker, a sidecar that is for other groups, or a group whose members are upstream."""

import asyncio
from collections.abc import Iterator

import pytest
from typer.testing import CliRunner, Result

from muster import cli as command
from tests.brokers.acls import Acl, add_acls
from tests.brokers.broker import Broker, lasting_base
from tests.brokers.secured import SUPER_USER, client_properties
from tests.coordinator.formed import form_group
from tests.coordinator.sidecar.admin_stage import Front, front_of, new_name
from tests.coordinator.sidecar.groups.test_moving import NewerConsumer
from tests.coordinator.sidecar.security.security_stage import (
    LISTENER,
    formed,
    new_group,
    shared_broker,
    sidecar,
    speaking,
)
from tests.muster_process import running_muster
from tests.waiting import until_so

pytestmark = pytest.mark.broker

ENVIRONMENT = {"COLUMNS": "200", "TERM": "dumb", "MUSTER_BOOTSTRAP": ""}
CHANGES = [
    ["members", "add", "GROUP", "web-9"],
    ["members", "withdraw", "GROUP", "web-9"],
    ["members", "retire", "GROUP", "one"],
    ["members", "keep", "GROUP", "one"],
    ["members", "promote", "GROUP", "--all"],
    ["members", "rebalance", "GROUP"],
    ["members", "config", "GROUP", "target.group.size=2"],
    ["release", "GROUP"],
]
OTHERS = [
    ["members", "list", "GROUP"],
    ["members", "config", "GROUP"],
    ["groups", "repair", "GROUP"],
    ["adopt", "GROUP"],
]


@pytest.fixture(scope="module")
def front(kafka_broker: Broker) -> Iterator[Front]:
    with front_of(kafka_broker) as front:
        yield front


@pytest.fixture(scope="module")
def upstreams(front: Front) -> str:
    """A group with a member at the broker."""
    group_id = new_name("upstreams")
    form_group(front.broker.bootstrap, group_id, "one")
    return group_id


def run(arguments: list[str], bootstrap: str, group_id: str = "", *options: str) -> Result:
    given = [group_id if each == "GROUP" else each for each in arguments]
    return CliRunner().invoke(command.app, [*given, "--bootstrap", bootstrap, *options], env=ENVIRONMENT)


@pytest.mark.parametrize("arguments", [*CHANGES, *OTHERS, ["release", "--all"]], ids=" ".join)
def test_a_broker_is_named_as_one(front: Front, upstreams: str, arguments: list[str]) -> None:
    """On a broker's own machine it listens at the default address."""
    done = run(arguments, front.broker.bootstrap, upstreams)
    text = f"{front.broker.bootstrap} is a Kafka broker, not Muster: name the sidecar (--bootstrap, MUSTER_BOOTSTRAP)\n"
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.endswith(text)


@pytest.mark.parametrize("arguments", CHANGES, ids=" ".join)
def test_a_group_with_members_upstream_is_not_called_unknown(
    front: Front, upstreams: str, arguments: list[str]
) -> None:
    """Changes report the same as `members list`; `muster release` does not suggest adopting it."""
    done = run(arguments, front.muster.bootstrap, upstreams)
    assert (done.exit_code, done.stdout) == (1, "")
    if arguments[0] == "release":
        assert f"the members of group {upstreams} are upstream already: there is nothing to release" in done.stderr
        return
    assert f"group {upstreams} is not coordinated by Muster: it has members upstream (type consumer)" in done.stderr
    assert f"muster adopt {upstreams}" in done.stderr


@pytest.mark.clients
def test_a_group_of_a_newer_type_is_not_called_unknown(front: Front) -> None:
    """DescribeGroups does not find it, and it cannot be adopted."""
    consumer = NewerConsumer(front.broker.bootstrap, new_name("newer"), front.topic).start()
    try:
        until_so(lambda: bool(consumer.assigned), lambda: consumer.error)
        for arguments in [*CHANGES, ["members", "list", "GROUP"], ["groups", "repair", "GROUP"]]:
            done = run(arguments, front.muster.bootstrap, consumer.group_id)
            assert (done.exit_code, done.stdout) == (1, ""), arguments
            text = (
                f"{consumer.group_id} is not a classic group, but one of the newer type consumer, coordinated upstream"
            )
            assert text in done.stderr, arguments
    finally:
        consumer.end()


def test_a_sidecar_for_other_groups_says_so(front: Front, upstreams: str) -> None:
    """It relays requests about that group, so it responds like a broker."""
    at = ["--upstream", front.broker.bootstrap, "--broker-base-port", str(lasting_base())]
    with running_muster(log="memory:", options=[*at, "--groups", "others-*"]) as muster:
        for arguments in [*CHANGES, *OTHERS]:
            done = run(arguments, muster.bootstrap, upstreams)
            assert (done.exit_code, done.stdout) == (1, ""), arguments
            assert "this Muster does not handle groups of that name (--groups)" in done.stderr
        done = run(["release", "--all"], muster.bootstrap)
        assert (done.exit_code, "nothing to release" in done.stderr) == (0, True)


async def test_releasing_all_groups_needs_permission_to_describe_them() -> None:
    """A list omits groups that the user may not describe; `--all` says which permission is missing."""
    with shared_broker() as broker, sidecar(broker) as muster:
        seen, hidden = new_group(), new_group()
        async with speaking(muster.bootstrap, SUPER_USER) as members:
            await formed(members, seen)
            await formed(members, hidden)

            def release(user: str) -> Result:
                properties = client_properties(LISTENER, user=user)
                given = [part for name, value in properties.items() for part in ("--kafka-config", f"{name}={value}")]
                return run(["release", "--all", "--dry-run"], muster.bootstrap, "", *given)

            done = await asyncio.to_thread(release, "alice")
            lacks = "user alice (sasl.username) lacks the ACL Allow DESCRIBE on GROUP *"
            assert (done.exit_code, done.stdout) == (1, "")
            assert lacks in done.stderr
            rights = ("READ", "ALTER_CONFIGS")
            add_acls(broker.admin(), *(Acl("alice", "group", seen, right) for right in rights))
            done = await asyncio.to_thread(release, "alice")
            assert (done.exit_code, done.stdout.count("\n")) == (0, 1)
            assert done.stdout.startswith(f"{seen}: ")
            assert lacks in done.stderr
            add_acls(broker.admin(), *(Acl("alice", "group", "*", right) for right in rights))
            done = await asyncio.to_thread(release, "alice")
            assert (done.exit_code, done.stdout.count("\n"), done.stderr) == (0, 2, "")
