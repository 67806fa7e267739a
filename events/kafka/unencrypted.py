"""Warning of a password that is sent unencrypted, once a process, with the setting that would encrypt it.

What belongs here: that line, and suppressing aiokafka's own, which comes with each connection and names neither. The
mechanisms other than PLAIN send no password.
"""

import logging
from collections.abc import Mapping
from typing import Any

log = logging.getLogger(__name__)

_AIOKAFKAS_LINE = "Sending username and password in the clear"


def _is_not_its_own(record: logging.LogRecord) -> bool:
    return record.msg != _AIOKAFKAS_LINE


logging.getLogger("aiokafka.conn").addFilter(_is_not_its_own)


_told: set[str] = set()


def warn_unencrypted(host: str, port: int, arguments: Mapping[str, Any]) -> None:
    """Warn once if a connection with these arguments of aiokafka's sends a password unencrypted."""
    if (arguments.get("security_protocol"), arguments.get("sasl_mechanism")) != ("SASL_PLAINTEXT", "PLAIN") or _told:
        return
    _told.add(f"{host}:{port}")
    log.warning(
        "the password goes unencrypted to %s:%d (security.protocol=SASL_PLAINTEXT; SASL_SSL encrypts it)", host, port
    )
