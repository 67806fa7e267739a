"""Opening a connection to a broker: the one call of aiokafka's in which a fault of its own is no bug of ours.

What belongs here: that call. What it must not know: what becomes of the connection.

While it connects, aiokafka reads what a broker says of itself (versions, mechanisms, tokens), and what it does not
expect comes out as a KeyError or AssertionError. It is that broker, at this moment, that cannot be used: another one
is asked, and this one again.
"""

from typing import Any

from aiokafka.conn import AIOKafkaConnection, create_conn

from muster.events.kafka.failures import NOT_OPENED
from muster.events.kafka.unencrypted import tell_unencrypted


class LibraryFailed(RuntimeError):
    """aiokafka has met what it does not expect; the cause is what it raised."""


async def connect(host: str, port: int, **arguments: Any) -> AIOKafkaConnection:  # noqa: ANN401 -- aiokafka's own
    """aiokafka's connection, open and authenticated. Raises what is in NOT_OPENED, LibraryFailed among it."""
    tell_unencrypted(host, port, arguments)
    try:
        return await create_conn(host, port, **arguments)
    except NOT_OPENED:
        raise
    except Exception as error:
        raise LibraryFailed(f"{type(error).__name__} within aiokafka, as it connected") from error
