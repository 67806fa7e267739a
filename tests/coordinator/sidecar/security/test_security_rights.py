"""Rights on a group of ours: the same results as from the broker directly, right by right and mixed."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any
from uuid import UUID

import pytest
from kio.schema.errors import ErrorCode

from tests.brokers.acls import CLUSTER_NAME, Acl, add_acls, remove_acls
from tests.brokers.secured import SUPER_USER, SecuredBroker
from tests.conformance.wire import Connection
from tests.coordinator.sidecar.security.rights_questions import OWN_TOPIC, Stage, questions
from tests.coordinator.sidecar.security.rights_table import NOT_LISTED, RESERVED, RIGHTS, Row
from tests.coordinator.sidecar.security.security_stage import (
    LISTENER,
    TOPIC,
    errors_of,
    formed,
    join_body,
    new_group,
    producing,
    shared_broker,
    sidecar,
    speaking,
)
from tests.muster_process import MusterProcess

pytestmark = pytest.mark.broker

GROUP_AUTHORIZATION_FAILED = 30
GROUP, CONFIG = 32, "consumer.session.timeout.ms"
_NOBODY = {"member_id": "nobody", "group_instance_id": None, "generation_id": 1}
_PARTITION = {"partition_index": 0, "committed_offset": 7, "committed_metadata": None}
_TOPICS = [{"name": TOPIC, "partitions": [_PARTITION]}]

Question = tuple[str, int, dict[str, Any]]


def questions_of_nobody(group_id: str) -> dict[str, Question]:
    """Requests of a client that is no member: refused for that reason, if it has the right to ask at all."""
    alteration = {"name": CONFIG, "config_operation": 0, "value": "50000"}
    resource = {"resource_type": GROUP, "resource_name": group_id}
    requested: list[Question] = [
        ("JoinGroup", 9, join_body(group_id, protocol_type="another")),
        ("JoinGroup", 3, join_body(group_id, protocol_type="another")),
        (
            "SyncGroup",
            5,
            {"group_id": group_id, **_NOBODY, "protocol_type": None, "protocol_name": None, "assignments": []},
        ),
        ("Heartbeat", 4, {"group_id": group_id, **_NOBODY}),
        ("LeaveGroup", 5, {"group_id": group_id, "members": [{**_NOBODY, "reason": None}]}),
        ("LeaveGroup", 2, {"group_id": group_id, "member_id": "nobody"}),
        ("OffsetCommit", 9, {"group_id": group_id, **_NOBODY, "generation_id_or_member_epoch": 1, "topics": _TOPICS}),
        ("OffsetCommit", 9, {"group_id": group_id, **_no_member(), "topics": _TOPICS}),
        ("OffsetFetch", 8, {"groups": [{"group_id": group_id, "topics": None}], "require_stable": False}),
        ("DescribeGroups", 5, {"groups": [group_id], "include_authorized_operations": True}),
        ("DescribeGroups", 6, {"groups": [group_id], "include_authorized_operations": True}),
        ("DeleteGroups", 2, {"groups_names": [group_id]}),
        (
            "OffsetDelete",
            0,
            {"group_id": group_id, "topics": [{"name": TOPIC, "partitions": [{"partition_index": 0}]}]},
        ),
        (
            "DescribeConfigs",
            4,
            {
                "resources": [{**resource, "configuration_keys": None}],
                "include_synonyms": False,
                "include_documentation": False,
            },
        ),
        ("IncrementalAlterConfigs", 1, {"resources": [{**resource, "configs": [alteration]}], "validate_only": True}),
    ]
    return {
        f"{name} v{version} {place}": (name, version, body) for place, (name, version, body) in enumerate(requested)
    }


def _no_member() -> dict[str, Any]:
    return {"member_id": "", "group_instance_id": None, "generation_id_or_member_epoch": -1}


@pytest.fixture(scope="module")
def broker() -> Iterator[SecuredBroker]:
    with shared_broker() as running:
        add_acls(
            running.admin(),
            Acl("alice", "group", "*", "READ"),
            Acl("alice", "topic", TOPIC, "READ"),
            Acl("muster", "topic", OWN_TOPIC, "ALL", is_prefix=True),
            Acl("muster", "transactional_id", f"muster-{OWN_TOPIC}", "ALL", is_prefix=True),
        )
        yield running


@pytest.fixture(scope="module")
def muster(broker: SecuredBroker) -> Iterator[MusterProcess]:
    log = f"kafka://{broker.address(LISTENER)}/{OWN_TOPIC}"
    with sidecar(broker, "--log-replication", "1", "--log-partitions", "1", log=log) as running:
        yield running


async def errors(address: str, user: str, group_id: str) -> dict[str, list[int]]:
    """Send each request as a user on a separate connection, so that they are independent."""
    reported = {}
    for title, (name, version, body) in questions_of_nobody(group_id).items():
        async with speaking(address, user) as connection:
            reported[title] = errors_of(await connection.ask(name, version, **body))
    return reported


async def listed(connection: Connection) -> list[str]:
    """The groups that a user sees in a list."""
    answer = await connection.ask("ListGroups", 4, states_filter=[])
    return [group["group_id"] for group in answer["groups"]]


@pytest.mark.parametrize(
    "rights",
    [
        (),
        ("DESCRIBE",),
        ("READ",),
        ("DELETE",),
        ("READ", "DELETE"),
        ("DESCRIBE_CONFIGS",),
        ("ALTER_CONFIGS",),
        ("ALL",),
    ],
    ids="+".join,
)
async def test_a_user_gets_the_brokers_errors(
    broker: SecuredBroker, muster: MusterProcess, rights: tuple[str, ...]
) -> None:
    """Each API, about a group with a member in it: the same errors through the sidecar as directly."""
    through, direct = new_group(), new_group()
    acls = [Acl("bob", "group", group_id, right) for group_id in (through, direct) for right in rights]
    acls += [Acl("bob", "topic", TOPIC, "READ")]
    add_acls(broker.admin(), *acls)
    try:
        async with (
            speaking(muster.bootstrap, "alice") as alice_through,
            speaking(broker.address(LISTENER), "alice") as alice_direct,
        ):
            await formed(alice_through, through)
            await formed(alice_direct, direct)
            reported = await errors(muster.bootstrap, "bob", through)
            told_directly = await errors(broker.address(LISTENER), "bob", direct)
            async with speaking(muster.bootstrap, "bob") as bob:
                may_see = through in await listed(bob)
            async with speaking(broker.address(LISTENER), "bob") as bob:
                assert may_see == (direct in await listed(bob))
    finally:
        remove_acls(broker.admin(), *acls)
    assert reported == told_directly


# ---- the table -----------------------------------------------------------------------------------------


@contextmanager
def allowed(broker: SecuredBroker, *acls: Acl) -> Iterator[None]:
    """While the block lasts."""
    admin = broker.admin()
    if acls:
        add_acls(admin, *acls)
    try:
        yield
    finally:
        if acls:
            remove_acls(admin, *acls)


def acl(row: Row, run: str) -> Acl:
    """Bob's right, for names that begin with `run`."""
    resource, name, is_prefix = {
        "Group": ("group", run, True),
        "TransactionalId": ("transactional_id", run, True),
        "Topic": ("topic", TOPIC, False),
        "Cluster": ("broker", CLUSTER_NAME, False),
    }[row.resource]
    return Acl("bob", resource, name, row.operation, is_prefix=is_prefix)


@asynccontextmanager
async def on_stage(address: str, name: str) -> AsyncIterator[Stage]:
    """Bob's requests at this address, about what others set up."""
    async with speaking(address, SUPER_USER) as admin, speaking(address, "alice") as alice:
        named = {"topics": [{"topic_id": None, "name": OWN_TOPIC}], "allow_auto_topic_creation": False}
        own = await admin.ask("Metadata", 12, **named, include_topic_authorized_operations=False)
        yield Stage(
            member=await formed(alice, name),
            transactional_id=name,
            producer=await producing(admin, name),
            own_topic_id=UUID(own["topics"][0]["topic_id"]),
        )


async def errors_for(address: str, user: str, stage: Stage, row: Row) -> list[list[str]]:
    """The errors of each form of the request, each on its own connection, so that no verdict is cached."""
    answers = []
    for api, version, body in questions(stage, *row.request):
        async with speaking(address, user) as connection:
            answer = await connection.ask(api, version, **body)
        errors = [ErrorCode(code).name.upper() for code in errors_of(answer)]
        if api == "ListGroups" and not any(each["group_id"] == stage.member.group_id for each in answer["groups"]):
            errors.append(NOT_LISTED)
        answers.append(errors)
    return answers


@pytest.mark.parametrize("row", RIGHTS, ids=str)
async def test_each_right_is_needed_and_all_together_are_enough(
    broker: SecuredBroker, muster: MusterProcess, row: Row
) -> None:
    """A user without it gets the table's error, like from the broker directly; a user with it gets the broker's
    result.
    """
    run, directly = new_group(), broker.address(LISTENER)
    others = [acl(each, run) for each in row.others()]
    async with on_stage(muster.bootstrap, f"{run}-here") as here, on_stage(directly, f"{run}-there") as there:
        with allowed(broker, *others):
            refused = await errors_for(muster.bootstrap, "bob", here, row)
            assert [set(errors) - {"NONE"} for errors in refused] == [{row.without}] * len(refused)
            if not row.only_here:
                assert refused == await errors_for(directly, "bob", there, row)
            with allowed(broker, acl(row, run)):
                served = await errors_for(muster.bootstrap, "bob", here, row)
                expected = [["NONE"]] * len(served) if row.only_here else await errors_for(directly, "bob", there, row)
    assert served == expected
    assert not any(row.without in errors for errors in served)


@pytest.mark.parametrize("row", RESERVED, ids=str)
async def test_musters_own_topics_are_refused_even_to_a_superuser(muster: MusterProcess, row: Row) -> None:
    """Only through the sidecar: the broker would accept it, and depose the owner."""
    async with on_stage(muster.bootstrap, new_group()) as stage:
        refused = await errors_for(muster.bootstrap, SUPER_USER, stage, row)
    assert [set(errors) - {"NONE"} for errors in refused] == [{row.without}] * len(refused)
