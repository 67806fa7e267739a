"""Errors of our own machine or process when a connection is opened or accepted: ports or files have run out.

The peer is not at fault. Knows how to fix each of these errors, and logs each at most once a minute.
"""

import errno
import logging
import math
import re
import time
from typing import Final

log = logging.getLogger(__name__)

_WAYS_OUT: Final = {
    errno.EADDRNOTAVAIL: (
        "this machine has no local port left for it (net.ipv4.ip_local_port_range; `ss -tan` shows what uses them),"
        " or no address of that kind"
    ),
    errno.EMFILE: "this process has reached its limit of open files (`ulimit -n`; LimitNOFILE= in a unit of systemd)",
    errno.ENFILE: "this machine has reached its limit of open files (fs.file-max)",
    errno.ENOBUFS: "this machine has no memory left for sockets (net.ipv4.tcp_mem)",
}
_NUMBER: Final = re.compile(r"\[Errno (\d+)]")
_INTERVAL_S: Final = 60.0

_logged_s: dict[tuple[str, str], float] = {}
"""When each line was last logged."""


def shortage(error: BaseException) -> str | None:
    """Return what has run out, including how to fix it; None for any other error.

    For a host with several addresses the event loop reports all errors in one text.
    """
    if not isinstance(error, OSError):
        return None
    numbers = [error.errno] if error.errno else list(map(int, _NUMBER.findall(str(error))))
    ways_out = [_WAYS_OUT.get(number) for number in numbers]
    return ways_out[0] if None not in ways_out and ways_out else None


def log_shortage(address: str, error: BaseException) -> str | None:
    """Return the same as `shortage`, after logging it if that was not done within the last minute."""
    return _log_throttled(f"no connection to the broker at {address}", shortage(error), "brokers")


def log_not_accepted(error: BaseException) -> str | None:
    """Return the same as `shortage`, after logging it, for an accept that failed or would fail."""
    return _log_throttled("cannot accept connections", shortage(error), "clients")


def _log_throttled(event: str, words: str | None, whose: str) -> str | None:
    now_s = time.monotonic()
    if words is not None and now_s >= _logged_s.get((whose, words), -math.inf) + _INTERVAL_S:
        _logged_s[whose, words] = now_s
        log.warning("%s: %s", event, words)
    return words
