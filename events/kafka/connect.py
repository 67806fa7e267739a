"""Opening a connection to a broker: the one call of aiokafka's in which a fault of its own is no bug of ours.

What belongs here: that call. What it must not know: the use of the connection.

While it connects, aiokafka reads the broker's versions, mechanisms and tokens, and an unexpected answer comes out as a
KeyError or AssertionError, or closes the connection, as if the broker had. Such a broker cannot be used at the moment:
another one is tried, and this one again.
"""

from typing import Any

from aiokafka.conn import AIOKafkaConnection, create_conn
from aiokafka.errors import KafkaConnectionError

from muster.events.kafka.failures import NOT_OPENED
from muster.events.kafka.unencrypted import warn_unencrypted

_OF_THE_SOCKET = (OSError, EOFError, type(None))
"""The causes of a closed connection, other than an answer that cannot be read."""


class LibraryFailed(RuntimeError):
    """aiokafka has met an unexpected answer; the cause is its own error."""


async def connect(host: str, port: int, **arguments: Any) -> AIOKafkaConnection:  # noqa: ANN401 -- aiokafka's own
    """Open and authenticate a connection of aiokafka's. Raises the errors in NOT_OPENED, LibraryFailed among them."""
    warn_unencrypted(host, port, arguments)
    try:
        return await create_conn(host, port, **arguments)
    except NOT_OPENED as error:
        if isinstance(error, KafkaConnectionError) and not isinstance(error.__cause__, _OF_THE_SOCKET):
            raise LibraryFailed("its answers cannot be read, as it connected") from error.__cause__
        raise
    except Exception as error:
        raise LibraryFailed(f"{type(error).__name__} within aiokafka, as it connected") from error
