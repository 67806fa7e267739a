"""Authorizations are requested on each connection, cached for a while, and shared with no other."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from time import monotonic
from uuid import uuid4

import pytest

from tests.brokers.acls import Acl, add_acls, remove_acls
from tests.brokers.secured import SecuredBroker
from tests.conformance.wire import Connection
from tests.coordinator.sidecar.security.security_stage import (
    LISTENER,
    TOPIC,
    Member,
    authenticate,
    begins,
    errors_of,
    formed,
    join,
    join_body,
    new_group,
    password,
    producing,
    shared_broker,
    sidecar,
    speaking,
)
from tests.muster_process import MusterProcess
from tests.waiting import until

pytestmark = pytest.mark.broker

CACHE_MS = 2_000
GROUP_AUTHORIZATION_FAILED, TOPIC_AUTHORIZATION_FAILED = 30, 29


@pytest.fixture(scope="module")
def broker() -> Iterator[SecuredBroker]:
    with shared_broker({"connections.max.reauth.ms": "600000"}) as running:
        add_acls(
            running.admin(),
            Acl("alice", "group", "orders-", "ALL", is_prefix=True),
            Acl("alice", "topic", TOPIC, "READ"),
            Acl("alice", "transactional_id", "shop-1", "WRITE"),
            Acl("bob", "transactional_id", "shop-1", "WRITE"),
        )
        yield running


@pytest.fixture(scope="module")
def muster(broker: SecuredBroker) -> Iterator[MusterProcess]:
    with sidecar(broker, "--authorization-cache-ms", str(CACHE_MS), "--metrics", "127.0.0.1:0") as running:
        yield running


@asynccontextmanager
async def in_a_group(muster: MusterProcess, group_id: str) -> AsyncIterator[Member]:
    """Alice, the only member of a group of ours."""
    async with speaking(muster.bootstrap, "alice") as connection:
        yield await formed(connection, group_id)


def fast_heartbeats(muster: MusterProcess) -> int:
    """The number of heartbeats answered without being decoded."""
    (line,) = [each for each in muster.asked("/metrics").splitlines() if each.startswith("muster_fast_heartbeats")]
    return int(float(line.split()[-1]))


async def commit(member: Member, topic: str = TOPIC) -> list[int]:
    """The errors of a commit."""
    partition = {"partition_index": 0, "committed_offset": 7, "committed_metadata": None}
    topics = [{"name": topic, "partitions": [partition]}]
    body = {**member.beating, "generation_id_or_member_epoch": member.generation_id, "topics": topics}
    return errors_of(await member.connection.ask("OffsetCommit", 9, **body))


async def test_an_authorized_client_is_served(broker: SecuredBroker, muster: MusterProcess) -> None:
    """Join, sync, heartbeat, commits and leave: none of them is refused, and the commit is in the group upstream."""
    group_id = new_group()
    async with in_a_group(muster, group_id) as member:
        assert await member.beat() == 0
        assert await commit(member) == [0]
        async with speaking(broker.address(LISTENER), "alice") as direct:
            requested = [{"group_id": group_id, "topics": None}]
            response = await direct.ask("OffsetFetch", 8, groups=requested, require_stable=False)
        assert response["groups"][0]["topics"][0]["partitions"][0]["committed_offset"] == 7
        left = [{"member_id": member.member_id, "group_instance_id": None, "reason": None}]
        assert errors_of(await member.connection.ask("LeaveGroup", 5, group_id=group_id, members=left)) == [0, 0]


async def test_a_commit_needs_its_topic_too(muster: MusterProcess) -> None:
    """The broker checks it, on the client's own connection, under the shadow's name."""
    async with in_a_group(muster, new_group()) as member:
        assert await commit(member, "secrets") == [TOPIC_AUTHORIZATION_FAILED]


@pytest.mark.parametrize(
    ("user", "transactional_id", "error"), [("alice", "shop-1", 0), ("alice", "another", 53), ("bob", "shop-1", 30)]
)
async def test_a_transactional_commit_needs_its_transactional_id_too(
    muster: MusterProcess, user: str, transactional_id: str, error: int
) -> None:
    """The broker checks it, as without a sidecar; for the group Muster knows the broker's verdict."""
    group_id = new_group()
    async with in_a_group(muster, group_id) as member, speaking(muster.bootstrap, user) as connection:
        partition = {"partition_index": 0, "committed_offset": 7, "committed_metadata": None}
        answer = await connection.ask(
            "TxnOffsetCommit",
            5,
            **member.beating,
            **await producing(connection, "shop-1"),
            transactional_id=transactional_id,
            topics=[{"name": TOPIC, "partitions": [partition]}],
        )
    assert errors_of(answer) == [error]


async def test_a_revoked_right_ends_heartbeats_when_the_verdict_is_old(
    broker: SecuredBroker, muster: MusterProcess
) -> None:
    """Including those of the fast path; not before, since the broker was not asked again."""
    group_id = f"mine-{uuid4().hex[:8]}"
    acl = Acl("bob", "group", group_id, "READ")
    add_acls(broker.admin(), acl)
    async with speaking(muster.bootstrap, "bob") as connection:
        member = await formed(connection, group_id)

        async def is_fast() -> bool:
            before = fast_heartbeats(muster)
            assert await member.beat() == 0
            return fast_heartbeats(muster) > before

        await until(is_fast)
        remove_acls(broker.admin(), acl)
        revoked_s = accepted_s = monotonic()

        async def is_refused() -> bool:
            nonlocal accepted_s
            sent_s = monotonic()
            error = await member.beat()
            if error == 0:
                accepted_s = sent_s
            return error == GROUP_AUTHORIZATION_FAILED

        await until(is_refused)
        assert accepted_s - revoked_s < CACHE_MS / 1000
        add_acls(broker.admin(), acl)
        await until(lambda: _is_accepted(member))  # a refusal is cached no longer than a grant
        remove_acls(broker.admin(), acl)


async def _is_accepted(member: Member) -> bool:
    return await member.beat() == 0


async def test_authorization_is_not_requested_for_every_heartbeat(broker: SecuredBroker) -> None:
    """While it is cached, a revoked right is not noticed: the broker is not asked in between."""
    group_id = f"mine-{uuid4().hex[:8]}"
    acl = Acl("bob", "group", group_id, "READ")
    add_acls(broker.admin(), acl)
    with sidecar(broker, "--authorization-cache-ms", "60000") as patient:
        async with speaking(patient.bootstrap, "bob") as connection:
            member = await formed(connection, group_id)
            assert await member.beat() == 0
            remove_acls(broker.admin(), acl)
            assert [await member.beat() for _ in range(3)] == [0, 0, 0]
            async with speaking(patient.bootstrap, "bob") as other:
                assert await Member(other, group_id, vars(member)).beat() == GROUP_AUTHORIZATION_FAILED


async def test_reauthentication_is_authorized_again(broker: SecuredBroker) -> None:
    """KIP-368: earlier grants no longer count."""
    group_id = f"mine-{uuid4().hex[:8]}"
    acl = Acl("bob", "group", group_id, "READ")
    add_acls(broker.admin(), acl)
    with sidecar(broker, "--authorization-cache-ms", "60000") as patient:
        async with speaking(patient.bootstrap, "bob") as connection:
            member = await formed(connection, group_id)
            assert [await member.beat(), await member.beat()] == [0, 0]
            remove_acls(broker.admin(), acl)
            await until(lambda: begins(connection))
            assert (await password(connection, "bob"))["error_code"] == 0
            assert await member.beat() == GROUP_AUTHORIZATION_FAILED


@pytest.mark.parametrize("user", ["bob", None])
async def test_copied_member_bytes_do_not_authorize_another_connection(muster: MusterProcess, user: str | None) -> None:
    """Byte for byte on another connection: that one is authorized separately, and refused or closed."""
    group_id = new_group()
    async with in_a_group(muster, group_id) as member, speaking(muster.bootstrap, user) as other:
        assert [await member.beat() for _ in range(3)] == [0, 0, 0]
        frame = member.connection.frame("Heartbeat", 4, **member.beating)
        pending = other.send_frame("Heartbeat", 4, frame)
        if user is None:
            with pytest.raises(ConnectionResetError):
                await pending.get()
        else:
            assert (await pending.get())["error_code"] == GROUP_AUTHORIZATION_FAILED
            assert await commit(Member(other, group_id, vars(member))) == [GROUP_AUTHORIZATION_FAILED]
        assert await member.beat() == 0


@pytest.mark.parametrize("is_owned", [True, False])
async def test_an_unauthenticated_client_reaches_no_group(muster: MusterProcess, is_owned: bool) -> None:
    """The broker closes the connection on our request, as on any other; none of these is answered."""
    group_id = new_group()
    async with in_a_group(muster, group_id if is_owned else new_group()) as member:
        by_name = {"group_id": group_id}
        for name, version, body in (
            ("JoinGroup", 9, join_body(group_id)),
            ("JoinGroup", 0, join_body(group_id)),
            ("Heartbeat", 4, {**member.beating, **by_name}),
            ("LeaveGroup", 1, {**by_name, "member_id": member.member_id}),
            ("DescribeGroups", 5, {"groups": [group_id], "include_authorized_operations": True}),
            ("ListGroups", 4, {"states_filter": []}),
            ("DeleteGroups", 2, {"groups_names": [group_id]}),
        ):
            connection = await Connection.open(muster.bootstrap)
            with pytest.raises(ConnectionResetError):
                await connection.ask(name, version, **body)
        assert await member.beat() == 0


async def test_a_wrong_password_opens_nothing(muster: MusterProcess) -> None:
    """The broker's refusal goes to the client unchanged, and it disconnects; later requests are not answered."""
    connection = await Connection.open(muster.bootstrap)
    answer = await authenticate(connection, "alice", "guessed")
    assert (answer["error_code"], answer["error_message"]) == (
        58,
        "Authentication failed: Invalid username or password",
    )
    with pytest.raises(ConnectionResetError):
        await connection.ask("JoinGroup", 9, **join_body(new_group()))
    assert "guessed" not in muster.output


async def test_a_refused_client_may_be_authorized_later(broker: SecuredBroker, muster: MusterProcess) -> None:
    """A refusal expires from the cache like a grant."""
    group_id = f"mine-{uuid4().hex[:8]}"
    async with speaking(muster.bootstrap, "bob") as connection:
        assert (await join(connection, group_id))["error_code"] == GROUP_AUTHORIZATION_FAILED
        add_acls(broker.admin(), Acl("bob", "group", group_id, "READ"))

        async def may_join() -> bool:
            return bool((await join(connection, group_id))["error_code"] == 0)

        async with asyncio.timeout(CACHE_MS / 1000 + 5):
            await until(may_join)
