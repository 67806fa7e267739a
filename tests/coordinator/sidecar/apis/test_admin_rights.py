"""Groups that a user may see and others that he may not, of ours and of others, in one call."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest

from tests.brokers.acls import Acl, add_acls, remove_acls
from tests.brokers.secured import SUPER_USER, SecuredBroker
from tests.conformance.wire import Connection, Fields
from tests.coordinator.sidecar.security.security_stage import (
    LISTENER,
    Member,
    formed,
    new_group,
    shared_broker,
    sidecar,
    speaking,
)
from tests.muster_process import MusterProcess
from tests.waiting import until

pytestmark = pytest.mark.broker


@pytest.fixture(scope="module")
def broker() -> Iterator[SecuredBroker]:
    with shared_broker() as broker:
        yield broker


@pytest.fixture(scope="module")
def muster(broker: SecuredBroker) -> Iterator[MusterProcess]:
    with sidecar(broker) as muster:
        yield muster


class Scene:
    """The same groups on both sides: alice may READ those whose names begin with `seen`, and no one the others.

    `member` has a member through the sidecar, `theirs` one upstream; `left` was ours, as was `forgotten`, which
    upstream has deleted.
    """

    def __init__(self) -> None:
        self.run = new_group()

    def name(self, side: str, what: str) -> str:
        return f"{self.run}-{side}-{what}"

    @asynccontextmanager
    async def set_up(self, broker: SecuredBroker, muster: MusterProcess) -> AsyncIterator[Connection]:
        """Return a connection of a superuser through the sidecar; the members stay while it is open."""
        add_acls(broker.admin(), Acl("alice", "group", self.name("seen", ""), "READ", is_prefix=True))
        async with (
            speaking(broker.address(LISTENER), SUPER_USER) as direct,
            speaking(muster.bootstrap, SUPER_USER) as through,
        ):
            for side in ("seen", "hidden"):
                await formed(through, self.name(side, "member"))
                await formed(direct, self.name(side, "theirs"))
                for what in ("left", "forgotten"):
                    await leave(await formed(through, self.name(side, what)))
                await until(partial(is_deleted, direct, self.name(side, "forgotten")))
            yield through


async def leave(member: Member) -> None:
    """Leave; the group is Empty then."""
    left = {"member_id": member.member_id, "group_instance_id": None, "reason": None}
    answer = await member.connection.ask("LeaveGroup", 5, group_id=member.group_id, members=[left])
    assert [each["error_code"] for each in answer["members"]] == [0]


async def is_deleted(direct: Connection, group_id: str) -> bool:
    """False while its shadow is still there."""
    answer = await direct.ask("DeleteGroups", 2, groups_names=[group_id])
    return bool(answer["results"][0]["error_code"] == 0)


async def test_a_user_sees_the_groups_it_may_describe(broker: SecuredBroker, muster: MusterProcess) -> None:
    """Only these are listed, including those that upstream does not list; each described group has its own result."""
    scene = Scene()
    async with scene.set_up(broker, muster) as admin, speaking(muster.bootstrap, "alice") as alice:
        assert await _listed(alice, scene) == [
            scene.name("seen", each) for each in ("forgotten", "left", "member", "theirs")
        ]
        assert len(await _listed(admin, scene)) == 8
        requested = [scene.name(side, each) for each in ("member", "theirs", "left") for side in ("seen", "hidden")]
        answer = await alice.ask("DescribeGroups", 6, groups=requested, include_authorized_operations=True)
        assert [each["group_id"] for each in answer["groups"]] == requested
        assert [(each["error_code"], each["group_state"]) for each in answer["groups"]] == [
            (0, "Stable"),
            (30, ""),
            (0, "Stable"),
            (30, ""),
            (0, "Empty"),
            (30, ""),
        ]
        may_read = {each["authorized_operations"] for each in answer["groups"] if not each["error_code"]}
        assert may_read == {1 << 3 | 1 << 8}, "READ, and DESCRIBE with it"


async def test_a_user_deletes_the_groups_it_may_delete(broker: SecuredBroker, muster: MusterProcess) -> None:
    """The others are refused in the same response, and stay."""
    scene = Scene()
    async with scene.set_up(broker, muster) as admin:
        left, member, theirs = (scene.name("seen", each) for each in ("left", "member", "theirs"))
        acls = [Acl("alice", "group", each, "DELETE") for each in (left, member, theirs)]
        add_acls(broker.admin(), *acls)
        async with speaking(muster.bootstrap, "alice") as alice:
            requested = [scene.name("hidden", "left"), left, member, scene.name("seen", "forgotten"), theirs]
            answer = await alice.ask("DeleteGroups", 2, groups_names=requested)
            assert [(each["group_id"], each["error_code"]) for each in answer["results"]] == list(
                zip(requested, (30, 0, 68, 30, 68), strict=True)
            )
        kept = {scene.name(side, each) for side in ("seen", "hidden") for each in ("member", "theirs", "forgotten")}
        assert set(await _listed(admin, scene)) == kept | {scene.name("hidden", "left")}


async def test_a_user_alters_the_settings_it_may_alter(broker: SecuredBroker, muster: MusterProcess) -> None:
    """Muster's configs need the same rights as Kafka's, to alter and to describe; nothing of other groups leaks."""
    scene = Scene()
    async with scene.set_up(broker, muster) as admin:
        mine, hidden = scene.name("seen", "member"), scene.name("hidden", "member")
        rights = [Acl("alice", "group", mine, operation) for operation in ("ALTER_CONFIGS", "DESCRIBE_CONFIGS")]
        add_acls(broker.admin(), *rights)
        async with speaking(muster.bootstrap, "alice") as alice:
            unknown = scene.name("hidden", "unknown")
            assert await _altered(alice, mine, hidden, unknown) == [0, 30, 30]
            assert await _described(alice, mine, hidden) == [{"target.group.size": "3"}, 30]
        assert await _described(admin, mine, hidden) == [{"target.group.size": "3"}, {"target.group.size": None}]


@pytest.mark.parametrize(
    ("rights", "altered", "described"),
    [
        (("ALTER_CONFIGS",), 30, 30),
        (("ALTER_CONFIGS", "DESCRIBE"), 30, 0),
        (("ALTER_CONFIGS", "READ"), 0, 0),
        (("READ",), 30, 30),
        (("DESCRIBE_CONFIGS",), 30, 30),
        (("DESCRIBE_CONFIGS", "DESCRIBE"), 30, 0),
        (("DESCRIBE_CONFIGS", "READ"), 30, 0),
        (("DESCRIBE_CONFIGS", "ALTER_CONFIGS", "READ"), 0, 0),
    ],
    ids=lambda value: "+".join(value) if isinstance(value, tuple) else None,
)
async def test_moving_a_group_needs_read_and_seeing_its_members_needs_describe(
    broker: SecuredBroker, muster: MusterProcess, rights: tuple[str, ...], altered: int, described: int
) -> None:
    """In addition to what the broker requires; Muster's configs without members are described like Kafka's own."""
    group_id = new_group()
    acls = [Acl("bob", "group", group_id, right) for right in rights]
    add_acls(broker.admin(), *acls)
    async with speaking(muster.bootstrap, SUPER_USER) as admin, speaking(muster.bootstrap, "bob") as bob:
        await formed(admin, group_id)
        for name, value in (("members.coordinator", "upstream"), ("target.group.size", "3")):
            change = {"name": name, "config_operation": 0, "value": value}
            resource = {"resource_type": 32, "resource_name": group_id, "configs": [change]}
            answer = await bob.ask("IncrementalAlterConfigs", 1, resources=[resource], validate_only=True)
            assert [each["error_code"] for each in answer["responses"]] == [altered], name
        may_see = 30 if rights == ("READ",) else 0  # ALTER_CONFIGS implies DESCRIBE_CONFIGS
        for name, expected in (("members", described), ("members.move", described), ("target.group.size", may_see)):
            request = {"resource_type": 32, "resource_name": group_id, "configuration_keys": [name]}
            answer = await bob.ask(
                "DescribeConfigs", 4, resources=[request], include_synonyms=False, include_documentation=False
            )
            (reported,) = answer["results"]
            assert reported["error_code"] == expected, name
            assert not (expected and reported["configs"])
    remove_acls(broker.admin(), *acls)


async def _listed(connection: Connection, scene: Scene) -> list[str]:
    answer = await connection.ask("ListGroups", 5, states_filter=[], types_filter=[])
    assert answer["error_code"] == 0
    return sorted(each["group_id"] for each in answer["groups"] if each["group_id"].startswith(scene.run))


async def _altered(connection: Connection, *group_ids: str) -> list[int]:
    change = {"name": "target.group.size", "config_operation": 0, "value": "3"}
    resources = [{"resource_type": 32, "resource_name": each, "configs": [change]} for each in group_ids]
    answer = await connection.ask("IncrementalAlterConfigs", 1, resources=resources, validate_only=False)
    return [each["error_code"] for each in answer["responses"]]


async def _described(connection: Connection, *group_ids: str) -> list[Any]:
    """The configs of each group, or the error."""
    request = {"resource_type": 32, "configuration_keys": ["target.group.size"]}
    answer: Fields = await connection.ask(
        "DescribeConfigs",
        4,
        resources=[{**request, "resource_name": each} for each in group_ids],
        include_synonyms=False,
        include_documentation=False,
    )
    reported = {each["resource_name"]: each for each in answer["results"]}
    return [
        reported[each]["error_code"] or {one["name"]: one["value"] for one in reported[each]["configs"]}
        for each in group_ids
    ]
