"""Connections to groups' coordinators: finds them, and retries when they have moved.

Of the requests it knows only how to find the error in a response. The connection to a cluster is in `events/kafka/`.
Brokers are identified by the addresses that FindCoordinator returns, not by Metadata: Musters behind several addresses
may all have the same node id.

    AdminError                  one line, to be shown to users
      InvalidArgument           the request makes no sense; nothing was sent
      AuthenticationFailed      the credentials are refused, or the server's certificate is not trusted
      NoCoordinator             no server answers, or none coordinates the group
        NotReady                a server answers, but does not coordinate the group now
      NotMuster                 a Kafka broker answers
      NotBroker                 Muster answers where a Kafka broker is needed
      OutcomeUnknown            the connection was lost during a change, or the response is about other members
      Refused                   the coordinator refuses the request; `error` is Kafka's
        UnknownGroup            there is no such group
        NotCoordinatedHere      the group has its members upstream
        NotForGroup             the sidecar does not coordinate the group (`--groups`)

COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE and NOT_COORDINATOR change nothing, so the request is retried
until a time limit. A change whose response was lost is never sent twice: it may have been made.
"""

import shlex
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from kio.schema.describe_cluster.v1.request import DescribeClusterRequest
from kio.schema.describe_cluster.v1.response import DescribeClusterResponse
from kio.schema.errors import ErrorCode
from kio.schema.find_coordinator.v4.request import FindCoordinatorRequest
from kio.schema.find_coordinator.v4.response import FindCoordinatorResponse
from kio.schema.list_groups.v5.request import ListGroupsRequest
from kio.schema.list_groups.v5.response import ListGroupsResponse
from tenacity import AsyncRetrying, retry_if_exception_type, stop_after_delay, wait_random_exponential

from muster.coordinator.group.configs import NOT_FOR_GROUP
from muster.coordinator.upstream.shadow import PROTOCOL_TYPE as SHADOW_PROTOCOL_TYPE
from muster.events.kafka.addresses import BrokerAddress, read_servers
from muster.events.kafka.connections import Connections
from muster.events.kafka.errors import COORDINATOR_MOVED, AnswerLost, LinkError, LinkRefused, TryAgain
from muster.events.kafka.exchange import Exchange, NotOffered, UnreadableAnswer
from muster.events.kafka.failures import describe_failure, hung_up, is_refusal, where_trust_is_set
from muster.events.kafka.first_answer import Round, first_answer
from muster.events.kafka.security import NOT_SECURED, KafkaSecurity

R = TypeVar("R")

CLIENT_ID = "muster-admin"
REQUEST_TIMEOUT_MS = 10_000
_RIGHTS = {10: "DESCRIBE", 13: "READ", 15: "DESCRIBE", 32: "DESCRIBE_CONFIGS", 44: "ALTER_CONFIGS"}
"""The operation on the group that a request needs, by API key."""

ErrorOf = Callable[[R], tuple[ErrorCode, str | None]]
"""Returns a response's top-level error and message."""


class AdminError(Exception):
    """An operation failed; the text says why, and is shown to users."""


class InvalidArgument(AdminError):
    """An argument is invalid, so no request was sent."""


class AuthenticationFailed(LinkRefused, AdminError):
    """The server refuses the credentials, or its certificate is not trusted."""


class NoCoordinator(LinkRefused, AdminError):
    """No server answers, or none coordinates the group."""


class NotReady(NoCoordinator):
    """A server answers, but does not coordinate the group now."""


class NotMuster(AdminError):
    """A Kafka broker answers.

    `perhaps_not_for`: it may also be a sidecar that does not coordinate this group; the user lacks the ACL to find out.
    """

    def __init__(self, asked_at: str, *, perhaps_not_for: str | None = None) -> None:
        perhaps = (
            "" if perhaps_not_for is None else f", or a sidecar that does not handle group {perhaps_not_for} (--groups)"
        )
        super().__init__(f"{asked_at} is a Kafka broker, not Muster{perhaps}: name the sidecar")


class OutcomeUnknown(AdminError):
    """A change was sent, and its response was lost or is about other members: the change may have been made."""


class Refused(AdminError):
    """The coordinator refused the request. The text contains Kafka's name for the error, and the coordinator's
    message.
    """

    def __init__(self, group_id: str, error: ErrorCode, message: str | None) -> None:
        super().__init__(f"group {group_id}: {error_text(error, message)}")
        self.error = error


class UnknownGroup(Refused):
    """The coordinator has no such group."""

    def __init__(self, group_id: str, message: str | None) -> None:
        super().__init__(group_id, ErrorCode.group_id_not_found, message)
        self.group_id = group_id


class NotBroker(AdminError):
    """Muster answers where a Kafka broker is needed."""

    def __init__(self, asked_at: str) -> None:
        super().__init__(
            f"{asked_at} is Muster, which does not list its own shadows: name a broker of the cluster (of --upstream)"
        )


class NotCoordinatedHere(Refused):
    """The group has its members upstream, where Muster does not list them. `is_newer`: the group is not classic."""

    def __init__(self, group_id: str, protocol_type: str, *, is_newer: bool = False) -> None:
        way_out = f"ask the brokers, or adopt the group with muster adopt {shlex.quote(group_id)}"
        whose = f"is not coordinated by Muster: it has members upstream (type {protocol_type}); {way_out}"
        if is_newer:
            whose = (
                f"is not a classic group, but one of the newer type {protocol_type}, coordinated upstream: ask "
                "the brokers"
            )
        elif protocol_type == SHADOW_PROTOCOL_TYPE:
            whose = "is coordinated by another Muster: ask that one"
        AdminError.__init__(self, f"group {group_id} {whose}")
        self.error = ErrorCode.group_id_not_found
        self.may_be_adopted = not is_newer and protocol_type != SHADOW_PROTOCOL_TYPE


class UpstreamAlready(Refused):
    """A group to be released already has its members upstream."""

    def __init__(self, group_id: str) -> None:
        AdminError.__init__(self, f"the members of group {group_id} are upstream already: there is nothing to release")
        self.error = ErrorCode.group_id_not_found


class NotForGroup(Refused):
    """The sidecar does not coordinate this group (`--groups`). The client detects this: Kafka has no error for it."""

    def __init__(self, group_id: str) -> None:
        super().__init__(group_id, ErrorCode.invalid_request, NOT_FOR_GROUP)


class _NotReadyYet(TryAgain):
    """The server responds that it does not coordinate the group, or not yet."""


def error_text(error: ErrorCode, message: str | None) -> str:
    """Format an error: `INVALID_CONFIG: target.group.size=0: ...`, or without a message just Kafka's name."""
    name = error.name.upper()
    return f"{name}: {message}" if message else name


class CoordinatorLink:
    """Connections to groups' coordinators, opened on demand."""

    def __init__(self, bootstrap: str, *, retry_ms: int, security: KafkaSecurity = NOT_SECURED) -> None:
        """`retry_ms`: how long a request is retried. Raises InvalidArgument for an address that cannot be parsed."""
        try:
            self._bootstrap = read_servers(bootstrap)
        except ValueError as error:
            raise InvalidArgument(str(error)) from error
        self._security = security
        self._retry_ms = retry_ms
        self._request_timeout_ms = min(REQUEST_TIMEOUT_MS, retry_ms)
        self._connections = Connections(
            security, connect_timeout_ms=self._request_timeout_ms, explain=self._explained, client_id=CLIENT_ID
        )
        self._coordinators: dict[str, BrokerAddress] = {}

    async def close(self) -> None:
        """Close all connections."""
        await self._connections.close()

    async def ask(self, group_id: str, exchange: Exchange[R], error_of: ErrorOf[R], *, changes: bool) -> R:
        """Send a request to a group's coordinator, with retries; return its response, which may have an error.

        `changes`: the request changes something. Raises NoCoordinator, OutcomeUnknown, and Refused if an ACL is
        missing or the coordinator cannot be looked up.
        """
        attempts = AsyncRetrying(
            retry=retry_if_exception_type(TryAgain),
            wait=wait_random_exponential(multiplier=0.05, max=1.0),
            stop=stop_after_delay(self._retry_ms / 1000),
            reraise=True,
        )
        try:
            return await attempts(self._attempt, group_id, exchange, error_of, changes=changes)
        except TryAgain as error:
            text = (
                f"no coordinator of group {group_id} within {self._retry_ms / 1000:g} s, asked at {self.asked_at}: "
                f"{error}"
            )
            if not isinstance(error, _NotReadyYet):
                raise NoCoordinator(text) from error
            raise NotReady(
                f"{text}; it may be starting, its event log may be unavailable, or it may not reach the process that "
                "owns the group: muster status and its log say which; or the group may be quarantined: muster groups "
                f"repair {shlex.quote(group_id)} says so"
            ) from error

    async def list_groups(self, types: tuple[str, ...] = ()) -> Mapping[str, str]:
        """Return the type of each group by its id, for all groups or only these types. Each broker lists only the
        groups that it coordinates.

        Raises NoCoordinator and AuthenticationFailed.
        """
        where = Exchange(DescribeClusterRequest(include_cluster_authorized_operations=False), DescribeClusterResponse)
        asked = await first_answer(self._bootstrap, lambda address: self._ask_at(address, where), (LinkError,))
        if asked.answer is None:
            if asked.all_failed_as(LinkRefused):
                raise type(asked.failed[0])(asked.reasons) from asked.failed[0]
            raise NoCoordinator(f"no process answers at {self.asked_at} ({asked.reasons})") from asked.failed[0]
        found: dict[str, str] = {}
        for broker in asked.answer[1].brokers:
            address = BrokerAddress(broker.host, broker.port)
            exchange = Exchange(ListGroupsRequest(types_filter=types), ListGroupsResponse)
            try:
                listed = await self._ask_at(address, exchange)
            except TryAgain as error:
                raise NoCoordinator(f"cannot list the groups of {address}: {error}") from error
            if listed.error_code is not ErrorCode.none:
                raise NoCoordinator(f"{address} does not list its groups: {error_text(listed.error_code, None)}")
            found |= {group.group_id: group.group_type for group in listed.groups}
        return found

    async def _attempt(self, group_id: str, exchange: Exchange[R], error_of: ErrorOf[R], *, changes: bool) -> R:
        address = self._coordinators.get(group_id) or await self._find(group_id)
        try:
            response = await self._ask_at(address, exchange)
        except AnswerLost as error:
            self._coordinators.pop(group_id, None)
            if not changes:
                raise
            why = str(error)
            if not isinstance(error.__cause__, TimeoutError | UnreadableAnswer):
                why = (
                    f"lost the connection to its coordinator at {address} before a response: the process may have "
                    "ended (see its log)"
                )
            raise OutcomeUnknown(
                f"group {group_id}: {why}; it is unknown whether the change was made: check with muster members "
                "list, then try again"
            ) from error
        except TryAgain as error:
            self._coordinators.pop(group_id, None)
            raise TryAgain(f"the brokers name {address}, which does not answer: {error}") from error.__cause__
        error_code, message = error_of(response)
        if error_code in COORDINATOR_MOVED:
            self._coordinators.pop(group_id, None)
            raise _NotReadyYet(f"{address} returned {error_text(error_code, message)}")
        if error_code is ErrorCode.group_authorization_failed:
            raise self._denied(group_id, exchange.API_KEY, message)
        return response

    def _denied(self, group_id: str, api_key: int, message: str | None) -> Refused:
        """Return the error for a missing ACL, with the principal and the operation, which brokers do not name."""
        who = self._security.who
        if message and "authorization failed" not in message.lower():
            text = f"{message}; it was asked as {who}"
        else:
            text = f"{who} lacks the ACL Allow {_RIGHTS[api_key]} on GROUP {group_id}"
        return Refused(group_id, ErrorCode.group_authorization_failed, text)

    async def _find(self, group_id: str) -> BrokerAddress:
        exchange = Exchange(FindCoordinatorRequest(coordinator_keys=(group_id,)), FindCoordinatorResponse)
        asked = await first_answer(self._bootstrap, lambda address: self._ask_at(address, exchange), (LinkError,))
        if asked.answer is None:
            raise self._no_coordinator(group_id, asked) from asked.failed[0].__cause__
        for silent in asked.silent:
            self._connections.hang_up(silent, lambda _: True)
        (found,) = asked.answer[1].coordinators
        if found.error_code in COORDINATOR_MOVED:
            raise _NotReadyYet(error_text(found.error_code, found.error_message))
        if found.error_code is ErrorCode.group_authorization_failed:
            raise self._denied(group_id, FindCoordinatorRequest.__api_key__, found.error_message)
        if found.error_code is not ErrorCode.none:
            raise Refused(group_id, found.error_code, found.error_message)
        coordinator = self._coordinators[group_id] = BrokerAddress(found.host, found.port)
        return coordinator

    def _no_coordinator(self, group_id: str, asked: Round[BrokerAddress, Any, LinkError]) -> LinkError:
        if asked.all_failed_as(LinkRefused):
            return type(asked.failed[0])(asked.reasons)
        if self._connections.was_answered and any(isinstance(error, AnswerLost) for error in asked.failed):
            return TryAgain(asked.reasons)
        is_there = any(isinstance(error, LinkRefused) or _is_reachable(error.__cause__) for error in asked.failed)
        return NoCoordinator(
            f"nobody answers at {self.asked_at} that could name the coordinator of group {group_id} ({asked.reasons})"
            f"{'' if is_there else ': start it (muster serve), or name its address'}"
        )

    async def _ask_at(self, address: BrokerAddress, exchange: Exchange[R]) -> R:
        """Send a request once. Raises TryAgain (also AnswerLost), NoCoordinator, AuthenticationFailed."""
        try:
            answer: R = await self._connections.ask(address, exchange, lane=0, timeout_ms=self._request_timeout_ms)
        except TryAgain as error:
            if not isinstance(error.__cause__, TimeoutError):
                raise
            raise type(error)(
                f"{address} has not answered within {self._request_timeout_ms / 1000:g} s: it may be out of reach, or "
                "no port for Kafka clients (that of --metrics is none); or if it is a sidecar, its cluster may hang: "
                "see its /readyz"
            ) from error.__cause__
        return answer

    def _explained(self, address: BrokerAddress, error: Exception) -> LinkError:
        """Return the link's error for a failed connection, as `events.kafka.connections.Explain`."""
        hung_up_at_once = (
            f"{address} hung up before it answered: {self._security.wanted()} Or if it is a sidecar, its cluster may be"
            " away: see its /readyz; or it has run out of files: see its log"
        )
        match error:
            case NotOffered():
                return NoCoordinator(f"{address} does not offer {error}: it is neither Muster nor Kafka 4")
            case AnswerLost():
                return AnswerLost(hung_up_at_once)
        if is_refusal(error) and not isinstance(error, UnicodeError):  # UnicodeError: not a valid host name
            why = f"{error}{where_trust_is_set(error)}"
            return AuthenticationFailed(f"no connection to {address} with these credentials and certificates: {why}")
        return TryAgain(hung_up_at_once if hung_up(error) else describe_failure(error))

    @property
    def user(self) -> str:
        """The user's principal, for messages."""
        return self._security.who

    @property
    def asked_at(self) -> str:
        """The addresses that were given."""
        return ",".join(map(str, self._bootstrap))


def _is_reachable(error: BaseException | None) -> bool:
    """Return whether there is a server at the address of a failed connection."""
    return not isinstance(error, OSError | UnicodeError) or isinstance(error, TimeoutError) or hung_up(error)
