"""Requests the status of a process at its --metrics address; explains what to do if there is no response."""

import http.client
import socket
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import msgspec

from muster.coordinator.observability.status import LEVEL, ProcessStatus
from muster.events.kafka.addresses import read_address

ANSWER_BYTES_MAX: Final = 64 * 1024 * 1024
ASKED_AT_ONCE: Final = 16
_START_IT: Final = "is muster serve running there, and is that its --metrics address?"
_CLIENTS_PORT: Final = "that may be the address for Kafka clients: name the --metrics address"


class Unanswered(msgspec.Struct, frozen=True, kw_only=True):
    """A process that did not answer: why, and what to do."""

    reason: str
    way_out: str


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """An address, and the answer from it."""

    address: str
    answer: ProcessStatus | Unanswered


class _Level(msgspec.Struct):
    level: int


def ask_all(addresses: Sequence[str], timeout_s: float) -> list[Asked]:
    """Ask all in parallel, each address once; return the answers in that order. Raises ValueError if not HOST:PORT."""
    unique = list(dict.fromkeys(_bare(address) for address in addresses))
    for address in unique:
        try:
            read_address(address)
        except ValueError as error:
            raise ValueError(f"{address!r} {error}") from error
    with ThreadPoolExecutor(ASKED_AT_ONCE) as pool:
        answers = pool.map(lambda address: ask(address, timeout_s), unique)
        return [Asked(address=address, answer=answer) for address, answer in zip(unique, answers, strict=True)]


def _bare(address: str) -> str:
    """Return HOST:PORT of what may be a URL, as copied from a browser."""
    return address.removeprefix("http://").partition("/")[0]


def ask(address: str, timeout_s: float) -> ProcessStatus | Unanswered:
    """Ask one process."""
    at = read_address(address)
    connection = http.client.HTTPConnection(at.host, at.port, timeout=timeout_s)
    try:
        connection.request("GET", "/status")
        response = connection.getresponse()
        body = response.read(ANSWER_BYTES_MAX)
    except ConnectionRefusedError:
        return Unanswered(reason="nothing listens there", way_out=_START_IT)
    except http.client.RemoteDisconnected:
        return Unanswered(reason="it closed the connection without a response", way_out=_CLIENTS_PORT)
    except TimeoutError:
        hung = (
            "its machine or the network may be down, or the process is stopped (SIGSTOP): check whether it runs there"
        )
        return Unanswered(reason=f"no answer within {timeout_s:g} s", way_out=hung)
    except socket.gaierror as error:
        return Unanswered(reason=f"unknown host: {error.strerror}", way_out="check the name")
    except (OSError, http.client.HTTPException) as error:
        said = str(error) or type(error).__name__
        return Unanswered(reason=f"cannot connect: {said}", way_out=_START_IT)
    finally:
        connection.close()
    return _understood(response.status, body)


def _understood(status: int, body: bytes) -> ProcessStatus | Unanswered:
    if status >= http.HTTPStatus.INTERNAL_SERVER_ERROR:
        return Unanswered(reason=f"it failed to respond, with HTTP {status}", way_out="its log says why: report it")
    if status != http.HTTPStatus.OK:
        return Unanswered(
            reason=f"the server there returns HTTP {status} and has no /status",
            way_out="name the --metrics address of a muster serve of this version",
        )
    try:
        level = msgspec.json.decode(body, type=_Level).level
        if level == LEVEL:
            return msgspec.json.decode(body, type=ProcessStatus)
    except msgspec.MsgspecError:
        return Unanswered(
            reason="the server there is not Muster", way_out="give the --metrics address of a Muster process"
        )
    return Unanswered(
        reason=f"its /status has another form (level {level}; this command knows {LEVEL})",
        way_out="use the muster command of its version",
    )
