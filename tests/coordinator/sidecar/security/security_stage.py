"""The parties of a test with an authenticating broker: a sidecar process, and users on raw connections.

It starts them and authenticates the users.
"""

import os
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Final
from uuid import uuid4

import pytest
from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]  # public, exported without saying so

from tests.brokers.acls import Acl, add_acls
from tests.brokers.broker import HOST, lasting_base
from tests.brokers.fixtures import OPT_OUT_VARIABLE, OPTED_OUT
from tests.brokers.secured import PROTOCOLS, SecuredBroker, client_properties, password_of, secured_broker
from tests.conformance.wire import Connection, Fields, ms
from tests.forked import run_muster
from tests.muster_process import TEST_CONFIG, MusterProcess, last_words, running_muster
from tests.waiting import until

LISTENER: Final = "SASL_PLAINTEXT"
MECHANISM: Final = "SCRAM-SHA-512"
TOPIC: Final = "orders"
WITHIN_S: Final = 30.0
ENDS_WITHIN_S: Final = 60
COORDINATOR_MOVES: Final = (14, 15, 16)
"""Errors after which a client looks the coordinator up; the first lookup makes the broker create its offsets topic."""
_SETTINGS: Final = {"group.initial.rebalance.delay.ms": "0", "group.min.session.timeout.ms": "100"}


@contextmanager
def shared_broker(settings: Mapping[str, str] | None = None) -> Iterator[SecuredBroker]:
    """For a module: with a topic, and with the rights that Muster's own principal needs for its shadows."""
    if os.environ.get(OPT_OUT_VARIABLE) == "1":
        pytest.skip(OPTED_OUT)
    with secured_broker({**_SETTINGS, **(settings or {})}) as broker:
        admin = broker.admin()
        admin.create_topics([NewTopic(TOPIC, 1)])[TOPIC].result(WITHIN_S)
        add_acls(admin, Acl("muster", "group", "*", "READ"))
        yield broker


def upstream_options(
    broker: SecuredBroker, listener: str = LISTENER, *, bootstrap: str | None = None, **changed: str
) -> list[str]:
    """Properties of the cluster for a sidecar; `changed` has `_` for the dots, and "" to leave one out."""
    properties = client_properties(
        PROTOCOLS[listener], authority=broker.authority, user="muster", mechanism=MECHANISM
    ) | {name.replace("_", "."): value for name, value in changed.items()}
    given = [f"{name}={value}" for name, value in properties.items() if value]
    options = ["--upstream", bootstrap or broker.address(listener)]
    return options + [part for entry in given for part in ("--upstream-config", entry)]


def own_ports() -> list[str]:
    """The address of the only broker's listener, the same after restarts."""
    return ["--broker-base-port", str(lasting_base())]


@contextmanager
def sidecar(
    broker: SecuredBroker,
    *options: str,
    listener: str = LISTENER,
    log: str = "memory:",
    config: Mapping[str, str] = TEST_CONFIG,
) -> Iterator[MusterProcess]:
    """A sidecar in front of this listener, while the block lasts."""
    with running_muster(
        log=log, config=config, options=[*upstream_options(broker, listener), *own_ports(), *options]
    ) as muster:
        yield muster


def new_group() -> str:
    """A unique name."""
    return f"orders-{uuid4().hex[:8]}"


@asynccontextmanager
async def speaking(address: str, user: str | None) -> AsyncIterator[Connection]:
    """A connection of this user, authenticated by PLAIN; None: not authenticated."""
    connection = await Connection.open(address, client_id=f"app-{user}")
    try:
        if user is not None:
            assert (await authenticate(connection, user))["error_code"] == 0
        yield connection
    finally:
        connection.close()


async def authenticate(connection: Connection, user: str, secret: str | None = None) -> Fields:
    """The broker's response to the password."""
    assert await begins(connection)
    return await password(connection, user, secret)


async def begins(connection: Connection) -> bool:
    """True if the broker lets an exchange start: the second one at least a second after the first."""
    return bool((await connection.ask("SaslHandshake", 1, mechanism="PLAIN"))["error_code"] == 0)


async def password(connection: Connection, user: str, secret: str | None = None) -> Fields:
    """The broker's response to it."""
    text = f"\0{user}\0{password_of(user) if secret is None else secret}"
    return await connection.ask("SaslAuthenticate", 2, auth_bytes=text.encode())


class Member:
    """A member of a group. `frame` of a heartbeat can be sent again, by others too."""

    def __init__(self, connection: Connection, group_id: str, joined: Fields) -> None:
        self.connection = connection
        self.group_id = group_id
        self.member_id: str = joined["member_id"]
        self.generation_id: int = joined["generation_id"]

    @property
    def beating(self) -> dict[str, Any]:
        """Its heartbeat."""
        return {
            "group_id": self.group_id,
            "generation_id": self.generation_id,
            "member_id": self.member_id,
            "group_instance_id": None,
        }

    async def beat(self) -> int:
        """The error of a heartbeat."""
        error: int = (await self.connection.ask("Heartbeat", 4, **self.beating))["error_code"]
        return error


def join_body(group_id: str, **changed: Any) -> dict[str, Any]:
    """A JoinGroup of a consumer."""
    return {
        "group_id": group_id,
        "session_timeout": ms(60_000),
        "rebalance_timeout": ms(60_000),
        "member_id": "",
        "group_instance_id": None,
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b""}],
        "reason": None,
    } | changed


async def join(connection: Connection, group_id: str, **changed: Any) -> Fields:
    """Join, repeated with the returned member id if one is required; return the response."""
    body = join_body(group_id, **changed)
    answer: Fields = {}

    async def answered() -> bool:
        answer.update(await connection.ask("JoinGroup", 9, **body))
        if answer["error_code"] not in COORDINATOR_MOVES:
            return True
        await connection.ask("FindCoordinator", 4, key_type=0, coordinator_keys=[group_id])
        return False

    await until(answered)
    if answer["error_code"] == 79:
        answer = await connection.ask("JoinGroup", 9, **(body | {"member_id": answer["member_id"]}))
    return answer


async def formed(connection: Connection, group_id: str) -> Member:
    """The only member of a stable group."""
    joined = await join(connection, group_id)
    assert joined["error_code"] == 0, joined
    member = Member(connection, group_id, joined)
    synced = await connection.ask(
        "SyncGroup",
        5,
        **member.beating,
        protocol_type="consumer",
        protocol_name="range",
        assignments=[{"member_id": member.member_id, "assignment": b""}],
    )
    assert synced["error_code"] == 0, synced
    return member


async def producing(connection: Connection, transactional_id: str) -> dict[str, int]:
    """The id and the epoch of a transactional producer."""
    request = {"transactional_id": transactional_id, "producer_id": -1, "producer_epoch": -1}
    answer: Fields = {}

    async def initialized() -> bool:
        await connection.ask("FindCoordinator", 4, key_type=1, coordinator_keys=[transactional_id])
        answer.update(await connection.ask("InitProducerId", 4, **request, transaction_timeout=ms(60_000)))
        return bool(answer["error_code"] == 0)

    await until(initialized)  # the first request makes the broker create its topic of transactions
    return {name: answer[name] for name in ("producer_id", "producer_epoch")}


def errors_of(answer: Any) -> list[int]:
    """All error codes of a response, in order."""
    if isinstance(answer, Mapping):
        here = [answer[name] for name in ("error_code", "partition_error_code") if name in answer]
        return here + [code for value in answer.values() for code in errors_of(value)]
    if isinstance(answer, Sequence) and not isinstance(answer, str | bytes):
        return [code for each in answer for code in errors_of(each)]
    return []


def refused_start(*options: str) -> str:
    """The one line with which `muster serve` refuses to start."""
    done = run_muster("serve", "--listen", f"{HOST}:0", "--log-format", "json", *options)
    lines = last_words(done.stderr)
    assert (done.returncode, done.stdout, len(lines)) == (2, "", 1), done.stderr
    assert "Traceback" not in done.stderr
    return lines[0]
