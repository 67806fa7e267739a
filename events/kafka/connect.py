"""Opening a connection to a broker: the one call of aiokafka's in which a fault of its own is no bug of ours.

What belongs here: that call. What it must not know: what becomes of the connection.

While it connects, aiokafka reads what a broker says of itself (versions, mechanisms, tokens), and what it does not
expect comes out as a KeyError or AssertionError, or ends the connection, as if the broker had hung up. It is that
broker, at this moment, that cannot be used: another one is asked, and this one again.
"""

from typing import Any

from aiokafka.conn import AIOKafkaConnection, create_conn
from aiokafka.errors import KafkaConnectionError

from muster.events.kafka.failures import NOT_OPENED
from muster.events.kafka.unencrypted import tell_unencrypted

_OF_THE_SOCKET = (OSError, EOFError, type(None))
"""What ends a connection but for an answer that cannot be read."""


class LibraryFailed(RuntimeError):
    """aiokafka has met what it does not expect; the cause is what it raised."""


async def connect(host: str, port: int, **arguments: Any) -> AIOKafkaConnection:  # noqa: ANN401 -- aiokafka's own
    """aiokafka's connection, open and authenticated. Raises what is in NOT_OPENED, LibraryFailed among it."""
    tell_unencrypted(host, port, arguments)
    try:
        return await create_conn(host, port, **arguments)
    except NOT_OPENED as error:
        if isinstance(error, KafkaConnectionError) and not isinstance(error.__cause__, _OF_THE_SOCKET):
            raise LibraryFailed("its answers cannot be read, as it connected") from error.__cause__
        raise
    except Exception as error:
        raise LibraryFailed(f"{type(error).__name__} within aiokafka, as it connected") from error
