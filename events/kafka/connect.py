"""Opens a connection to a broker: the only call of aiokafka's whose own bugs are handled here.

It also warns, once per process, about a password that is sent unencrypted. aiokafka's own warning is repeated for each
connection and names neither broker nor setting, so it is suppressed. (Mechanisms other than PLAIN send no password.)

While it connects, aiokafka reads the broker's versions, mechanisms and tokens, and an unexpected response becomes a
KeyError or AssertionError, or closes the connection, as if the broker had. Such a broker is currently unusable: another
one is tried, and later this one again.
"""

import logging
from collections.abc import Mapping
from typing import Any

from aiokafka.conn import AIOKafkaConnection, create_conn
from aiokafka.errors import KafkaConnectionError

from muster.events.kafka.failures import NOT_OPENED

log = logging.getLogger(__name__)

_AIOKAFKAS_LINE = "Sending username and password in the clear"


def _is_not_its_own(record: logging.LogRecord) -> bool:
    return record.msg != _AIOKAFKAS_LINE


logging.getLogger("aiokafka.conn").addFilter(_is_not_its_own)


_warned_of: set[str] = set()

_OF_THE_SOCKET = (OSError, EOFError, type(None))
"""The causes of a closed connection other than an unreadable response."""


class LibraryFailed(RuntimeError):
    """aiokafka got an unexpected response; the cause is its own error."""


async def connect(host: str, port: int, **arguments: Any) -> AIOKafkaConnection:  # noqa: ANN401 -- aiokafka's own
    """Open and authenticate a connection of aiokafka's. Raises the errors in NOT_OPENED, including LibraryFailed."""
    warn_unencrypted(host, port, arguments)
    try:
        return await create_conn(host, port, **arguments)
    except NOT_OPENED as error:
        if isinstance(error, KafkaConnectionError) and not isinstance(error.__cause__, _OF_THE_SOCKET):
            raise LibraryFailed("its responses cannot be read (while connecting)") from error.__cause__
        raise
    except Exception as error:
        raise LibraryFailed(f"{type(error).__name__} in aiokafka while connecting") from error


def warn_unencrypted(host: str, port: int, arguments: Mapping[str, Any]) -> None:
    """Warn once if a connection with these arguments of aiokafka's sends a password unencrypted."""
    is_plain = (arguments.get("security_protocol"), arguments.get("sasl_mechanism")) == ("SASL_PLAINTEXT", "PLAIN")
    if not is_plain or _warned_of:
        return
    _warned_of.add(f"{host}:{port}")
    log.warning(
        "the password goes unencrypted to %s:%d (security.protocol=SASL_PLAINTEXT; SASL_SSL encrypts it)", host, port
    )
