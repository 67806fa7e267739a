"""The Muster of a case, alone or in front of a broker, and the topics that its clients subscribe.

It starts Muster, knows where its log is, and adds partitions.

standalone   the log is a file, the topics are declared: they have other partitions after a restart
sidecar      the log is a separate topic at the broker, which all cases share and whose topics it creates
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from enum import StrEnum, unique
from pathlib import Path
from typing import Final
from uuid import uuid4

import msgspec
from confluent_kafka.admin import AdminClient, NewPartitions  # type: ignore[attr-defined]  # exported without saying so

from muster.events.ids import GroupId
from tests.brokers.broker import lasting_ports
from tests.brokers.probes import WITHIN_S, make_topics
from tests.muster_process import TEST_CONFIG, MusterProcess, running_muster, sqlite_log

CONFIG: Final[Mapping[str, str]] = {**TEST_CONFIG, "group.initial.rebalance.delay.ms": "1000"}
GROUP_ID: Final = GroupId("judged")
"""The group at a Muster that is alone."""

PARTITIONS: Final = 12
LOG_PARTITIONS: Final = 4


@unique
class Mode(StrEnum):
    """The two ways in which Muster is run."""

    SIDECAR = "sidecar"
    STANDALONE = "standalone"


class Service(msgspec.Struct, frozen=True, kw_only=True):
    """`orders` and `payments` are topics of `PARTITIONS` partitions; `broker`: the one behind it, if there is one."""

    muster: MusterProcess
    group_id: GroupId
    orders: str
    payments: str
    broker: str | None

    @property
    def is_sidecar(self) -> bool:
        return self.broker is not None

    def add_partitions(self) -> None:
        """Let `orders` have twice as many. Alone, Muster is restarted for that."""
        if self.broker is None:
            self.muster.restart(topics=_declared(self.orders, 2 * PARTITIONS, self.payments))
            return
        admin = AdminClient({"bootstrap.servers": self.broker})
        admin.create_partitions([NewPartitions(self.orders, 2 * PARTITIONS)])[self.orders].result(WITHIN_S)


@contextmanager
def running_service(folder: Path, broker: str | None) -> Iterator[Service]:
    """A Muster of the case's own: in front of `broker`, or alone. It is killed when the block is left."""
    with _standalone(folder) if broker is None else _sidecar(broker) as service:
        yield service


@contextmanager
def _standalone(folder: Path) -> Iterator[Service]:
    orders, payments = "orders", "payments"
    topics = _declared(orders, PARTITIONS, payments)
    with running_muster(log=sqlite_log(folder), topics=topics, config=CONFIG) as muster:
        yield Service(muster=muster, group_id=GROUP_ID, orders=orders, payments=payments, broker=None)


@contextmanager
def _sidecar(broker: str) -> Iterator[Service]:
    own = uuid4().hex[:8]
    orders, payments = f"orders-{own}", f"payments-{own}"
    make_topics({"bootstrap.servers": broker}, orders, payments, partitions=PARTITIONS)
    options = {
        "--upstream": broker,
        "--broker-base-port": str(lasting_ports(1)[0]),
        "--log-partitions": str(LOG_PARTITIONS),
        "--log-replication": "1",
    }
    given = [part for option in options.items() for part in option]
    with running_muster(log=f"kafka://{broker}/judged-{own}", config=CONFIG, options=given) as muster:
        group_id = GroupId(f"judged-{own}")
        yield Service(muster=muster, group_id=group_id, orders=orders, payments=payments, broker=broker)


def _declared(orders: str, partitions: int, payments: str) -> list[str]:
    return [f"{orders}:{partitions}", f"{payments}:{PARTITIONS}"]
