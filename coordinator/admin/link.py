"""The way to a group's coordinator: found, connected to, asked again when it has moved.

What belongs here: addresses, connections, FindCoordinator, and what may be tried again. What it must not know: what is
asked, but for the error in the answer.

How it works: aiokafka keeps a connection (security, correlation ids, ApiVersions), kio has the messages, in versions
that aiokafka lacks (`events/kafka/exchange.py`).

    AdminError          one clear line, for whoever asked
      WrongUse          it makes no sense to ask that; nothing was sent
      NotLetIn          who answers wants other credentials, or shows a certificate that is not trusted
      NoCoordinator     nobody answers, or nobody says that it coordinates the group
      OutcomeUnknown    the connection was lost while a change was under way
      Refused           the coordinator says no; `error` is Kafka's
        NotOurs         the group has its members upstream

COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE and NOT_COORDINATOR change nothing, so the same is asked again
until a limit ends. A change whose answer was lost is never sent twice: it may have been made.
"""

import asyncio
import shlex
import ssl
from collections.abc import Callable
from typing import TypeVar

import msgspec
from aiokafka.conn import AIOKafkaConnection, create_conn
from aiokafka.errors import (
    IllegalSaslStateError,
    KafkaConnectionError,
    KafkaError,
    SaslAuthenticationFailed,
    UnsupportedSaslMechanismError,
)
from kio.schema.errors import ErrorCode
from kio.schema.find_coordinator.v4.request import FindCoordinatorRequest
from kio.schema.find_coordinator.v4.response import FindCoordinatorResponse
from tenacity import AsyncRetrying, retry_if_exception_type, stop_after_delay, wait_random_exponential

from muster.events.kafka.exchange import Exchange, NotOffered
from muster.events.kafka.failures import said, where_trust_is_set
from muster.events.kafka.security import NOT_SECURED, KafkaSecurity
from muster.events.kafka.unencrypted import tell_unencrypted

R = TypeVar("R")

CLIENT_ID = "muster-admin"
REQUEST_LIMIT_MS = 10_000
_MOVED = frozenset(
    {ErrorCode.coordinator_load_in_progress, ErrorCode.coordinator_not_available, ErrorCode.not_coordinator}
)

_RIGHTS = {10: "DESCRIBE", 13: "READ", 15: "DESCRIBE", 32: "DESCRIBE_CONFIGS", 44: "ALTER_CONFIGS"}
"""On the group, by the key of the API that it is asked through."""

_NOT_LET_IN = (ssl.SSLError, SaslAuthenticationFailed, IllegalSaslStateError, UnsupportedSaslMechanismError)

ErrorOf = Callable[[R], tuple[ErrorCode, str | None]]
"""The error of an answer as a whole, and its message."""


class AdminError(Exception):
    """See the module."""


class WrongUse(AdminError):
    """See the module."""


class NotLetIn(AdminError):
    """See the module."""


class NoCoordinator(AdminError):
    """See the module."""


class OutcomeUnknown(AdminError):
    """See the module."""


class Refused(AdminError):
    """See the module. The text has Kafka's name of the error, and what the coordinator says about it."""

    def __init__(self, group_id: str, error: ErrorCode, message: str | None) -> None:
        super().__init__(f"group {group_id}: {error_text(error, message)}")
        self.error = error


class NotOurs(Refused):
    """The group has its members upstream, of whom Muster tells nothing."""

    def __init__(self, group_id: str, protocol_type: str) -> None:
        way_out = f"ask the brokers, or take it over with muster adopt {shlex.quote(group_id)}"
        whose = f"is not Muster's: it has its members upstream (type {protocol_type}); {way_out}"
        if protocol_type == "muster":  # of a shadow (coordinator/upstream/shadow.py)
            whose = "is not this Muster's: another one coordinates it; ask that one"
        AdminError.__init__(self, f"group {group_id} {whose}")
        self.error = ErrorCode.group_id_not_found


class _TryAgain(Exception):
    """Nothing was changed; the same again may succeed."""


def error_text(error: ErrorCode, message: str | None) -> str:
    """`INVALID_CONFIG: target.group.size=0: ...`; Kafka's name alone when there is nothing more to say."""
    name = error.name.upper()
    return f"{name}: {message}" if message else name


class Address(msgspec.Struct, frozen=True):
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def addresses(bootstrap: str) -> tuple[Address, ...]:
    """`127.0.0.1:9092`, or several with commas between them. Raises WrongUse."""
    return tuple(_address(text.strip()) for text in bootstrap.split(","))


def _address(text: str) -> Address:
    host, _, port = text.rpartition(":")
    if not host or not (port.isascii() and port.isdecimal()) or not 0 < int(port) <= 65_535:
        raise WrongUse(f"{text!r} should be HOST:PORT, for example 127.0.0.1:9092")
    return Address(host.strip("[]"), int(port))


class CoordinatorLink:
    """Connections to the coordinators of groups, opened when they are needed."""

    def __init__(self, bootstrap: str, *, limit_ms: int, security: KafkaSecurity = NOT_SECURED) -> None:
        """`limit_ms`: how long a coordinator is looked for. Raises WrongUse for what is no address."""
        self._bootstrap = addresses(bootstrap)
        self._security = security
        self._limit_ms = limit_ms
        self._request_limit_ms = min(REQUEST_LIMIT_MS, limit_ms)
        self._open: dict[Address, AIOKafkaConnection] = {}
        self._opening = asyncio.Lock()
        self._coordinators: dict[str, Address] = {}
        self._have_answered: set[Address] = set()

    async def close(self) -> None:
        """Hang up."""
        closing = [connection.close() for connection in self._open.values()]
        self._open.clear()
        for closed in closing:
            await closed

    async def ask(self, group_id: str, exchange: Exchange[R], error_of: ErrorOf[R], *, changes: bool) -> R:
        """The coordinator's answer, with whatever error but those after which one asks again.

        `changes`: what is asked for changes something. Raises NoCoordinator, OutcomeUnknown, and Refused when a right
        is missing, or the coordinator may not be looked up.
        """
        attempts = AsyncRetrying(
            retry=retry_if_exception_type(_TryAgain),
            wait=wait_random_exponential(multiplier=0.05, max=1.0),
            stop=stop_after_delay(self._limit_ms / 1000),
            reraise=True,
        )
        try:
            return await attempts(self._attempt, group_id, exchange, error_of, changes=changes)
        except _TryAgain as error:
            way_out = (
                "; it may be starting: ask again, or look at its log; or the group may be quarantined: "
                f"muster groups repair {shlex.quote(group_id)} says so"
            )
            raise NoCoordinator(
                f"no coordinator of group {group_id} within {self._limit_ms / 1000:g} s, asked at {self._asked_at()}: "
                f"{error}{'' if isinstance(error.__cause__, TimeoutError) else way_out}"
            ) from error

    async def _attempt(self, group_id: str, exchange: Exchange[R], error_of: ErrorOf[R], *, changes: bool) -> R:
        address = self._coordinators.get(group_id) or await self._find(group_id)
        try:
            connection = await self._connection(address)
        except (OSError, KafkaError) as error:
            self._coordinators.pop(group_id, None)
            why = self._unanswered(address, error) if isinstance(error, TimeoutError) else error
            raise _TryAgain(f"it is said to be at {address}, where nobody answers: {why}") from error
        try:
            response = await self._send(address, connection, exchange)
        except (KafkaError, TimeoutError) as error:
            why = self._unanswered(address, error)
            if not changes:
                raise _TryAgain(why) from error
            if not isinstance(error, TimeoutError):
                why = (
                    f"the connection to its coordinator at {address} was lost before it answered: it may have ended"
                    " while it was asked (see its log)"
                )
            raise OutcomeUnknown(
                f"group {group_id}: {why}; "
                "whether it made the change is not known: look (muster members list), then ask again"
            ) from error
        error_code, message = error_of(response)
        if error_code in _MOVED:
            self._coordinators.pop(group_id, None)
            raise _TryAgain(f"{address} says {error_text(error_code, message)}")
        if error_code is ErrorCode.group_authorization_failed:
            raise self._denied(group_id, exchange.API_KEY, message)
        return response

    def _denied(self, group_id: str, api_key: int, message: str | None) -> Refused:
        """With who it was, and the right; a sidecar's message says which, a broker's does not."""
        who = self._security.who
        if message and "authorization failed" not in message.lower():
            said = f"{message}; it was asked as {who}"
        else:
            said = f"{who} lacks the ACL Allow {_RIGHTS[api_key]} on GROUP {group_id}"
        return Refused(group_id, ErrorCode.group_authorization_failed, said)

    async def _find(self, group_id: str) -> Address:
        address, connection = await self._bootstrapped(group_id)
        request = FindCoordinatorRequest(coordinator_keys=(group_id,))
        try:
            response = await self._send(address, connection, Exchange(request, FindCoordinatorResponse))
        except (KafkaError, TimeoutError) as error:
            why = self._unanswered(address, error)
            if address in self._have_answered:
                raise _TryAgain(why) from error
            raise NoCoordinator(f"nobody says who coordinates group {group_id}: {why}") from error
        self._have_answered.add(address)
        (found,) = response.coordinators
        if found.error_code in _MOVED:
            raise _TryAgain(error_text(found.error_code, found.error_message))
        if found.error_code is ErrorCode.group_authorization_failed:
            raise self._denied(group_id, FindCoordinatorRequest.__api_key__, found.error_message)
        if found.error_code is not ErrorCode.none:
            raise Refused(group_id, found.error_code, found.error_message)
        coordinator = self._coordinators[group_id] = Address(found.host, found.port)
        return coordinator

    async def _bootstrapped(self, group_id: str) -> tuple[Address, AIOKafkaConnection]:
        reasons = []
        way_out = ": start it (muster serve), or name its address"
        for address in self._bootstrap:
            try:
                return address, await self._connection(address)
            except (KafkaError, TimeoutError) as error:
                reasons.append(self._unanswered(address, error))
                way_out = ""
            except OSError as error:
                reasons.append(str(error) or repr(error))
        raise NoCoordinator(
            f"nobody answers at {self._asked_at()} who could say who coordinates group {group_id} "
            f"({'; '.join(reasons)}){way_out}"
        )

    def _unanswered(self, address: Address, error: Exception) -> str:
        """What has become of a request, or of a connection, to this address, and what that may come from."""
        if isinstance(error, TimeoutError):
            return (
                f"{address} has not answered within {self._request_limit_ms / 1000:g} s: it may be out of reach; or if "
                "it is a sidecar, its cluster may hang: see its /readyz"
            )
        if not isinstance(error, KafkaConnectionError) or address in self._have_answered:
            return f"{address} did not answer: {said(error)}"
        protocol = self._security.security_protocol
        wanted = "does it want credentials or TLS" if protocol == "PLAINTEXT" else f"does it speak {protocol}"
        return (
            f"{address} hung up before it answered: {wanted} (security.protocol)? Or if it is a sidecar, its cluster "
            "may be away: see its /readyz"
        )

    async def _send(self, address: Address, connection: AIOKafkaConnection, exchange: Exchange[R]) -> R:
        """Raises KafkaError and TimeoutError when the connection is lost, and NoCoordinator."""
        try:
            response: R = await connection.send(exchange)
        except NotOffered as what:
            raise NoCoordinator(f"{address} does not offer {what}: it is neither Muster nor Kafka 4") from what
        except (KafkaError, TimeoutError):
            self._coordinators.clear()
            connection.close()
            raise
        return response

    async def _connection(self, address: Address) -> AIOKafkaConnection:
        """Raises NotLetIn, OSError, TimeoutError among them, and KafkaError."""
        async with self._opening:
            connection = self._open.get(address)
            if connection is None or not connection.connected():
                connection = self._open[address] = await self._opened(address)
        return connection

    async def _opened(self, address: Address) -> AIOKafkaConnection:
        arguments = self._security.client_arguments()
        tell_unencrypted(address.host, address.port, arguments)
        try:
            return await create_conn(
                address.host,
                address.port,
                client_id=CLIENT_ID,
                request_timeout_ms=self._request_limit_ms,
                **arguments,
            )
        except _NOT_LET_IN as error:
            why = f"{error}{where_trust_is_set(error)}"
            raise NotLetIn(f"no connection to {address} with these credentials and certificates: {why}") from error

    def _asked_at(self) -> str:
        return ",".join(map(str, self._bootstrap))
