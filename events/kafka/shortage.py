"""Errors of ours when a connection is opened or accepted, ports or files that have run out: its peer has no part in it.

What belongs here: which errors those are, their words with the way out, and one line of the log a minute for each.
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
        "this machine has no local port left for it (net.ipv4.ip_local_port_range; `ss -tan` shows who has them), or no"
        " address of its kind"
    ),
    errno.EMFILE: "this process may open no more files (`ulimit -n`; LimitNOFILE= in a unit of systemd)",
    errno.ENFILE: "this machine may open no more files (fs.file-max)",
    errno.ENOBUFS: "this machine has no memory left for sockets (net.ipv4.tcp_mem)",
}
_NUMBER: Final = re.compile(r"\[Errno (\d+)]")
_INTERVAL_S: Final = 60.0

_told_s: dict[tuple[str, str], float] = {}
"""When the line was written the last time."""


def shortage(error: BaseException) -> str | None:
    """Say what we have run out of, with the way out; None if the error is another one.

    Of a host with several addresses the event loop tells all errors in one text.
    """
    if not isinstance(error, OSError):
        return None
    numbers = [error.errno] if error.errno else list(map(int, _NUMBER.findall(str(error))))
    ways_out = [_WAYS_OUT.get(number) for number in numbers]
    return ways_out[0] if None not in ways_out and ways_out else None


def tell_shortage(address: str, error: BaseException) -> str | None:
    """Say the same as `shortage`, after a line of the log if none was written for the last minute."""
    return _tell(f"no connection to the broker at {address}", shortage(error), "brokers")


def tell_not_accepted(error: BaseException) -> str | None:
    """Say the same as `shortage` of an accept that failed, or would, after such a line."""
    return _tell("cannot accept connections", shortage(error), "clients")


def _tell(event: str, words: str | None, whose: str) -> str | None:
    now_s = time.monotonic()
    if words is not None and now_s >= _told_s.get((whose, words), -math.inf) + _INTERVAL_S:
        _told_s[whose, words] = now_s
        log.warning("%s: %s", event, words)
    return words
