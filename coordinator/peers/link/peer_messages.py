"""The messages between two processes of one event log, encoded as msgpack after a length of four bytes.

Pure. The *frontend*, the process that clients are connected to, opens a link to the process that owns their groups. On
a link each client connection has a number, and at most one request in progress, as Kafka handles one request of a
connection at a time. So messages need no correlation id, except questions to the broker, since one request may lead to
several of them.

Kafka's Envelope carries a request and its response, but nothing else: it cannot say that a request must be relayed to
the broker, ask the broker something on the client's connection, or report that a client has disconnected. One format
for all of this is simpler than two.
"""

from struct import Struct
from typing import Final

import msgspec

LEVEL: Final = 1
"""The version of these messages: a process with another one is refused."""

LENGTH: Final = Struct(">I")


class Message(msgspec.Struct, frozen=True, array_like=True):
    """Base of all messages."""


# ---- handshake: the accepting end begins -----------------------------------------------------------------------------


class Challenge(Message, frozen=True, tag=0):
    """`nonce`: random bytes of the accepting end."""

    level: int
    nonce: bytes


class Proof(Message, frozen=True, tag=1):
    """`log`: the identity of the event log. `node_id`: the connecting end. `wanted_node_id`: the node it looks for.

    `highest_tag`: the highest message tag that the sender understands. The MAC does not cover it: changing it in
    transit only makes the owner withhold a message, as it does for a process of an older version.
    """

    level: int
    log: str
    node_id: int
    wanted_node_id: int
    nonce: bytes
    mac: bytes
    highest_tag: int = 28


class Welcome(Message, frozen=True, tag=2):
    """The accepting end's proof."""

    mac: bytes


class Denied(Message, frozen=True, tag=3):
    """A human-readable reason; the connection is closed."""

    reason: str


# ---- the connection itself -------------------------------------------------------------------------------------------


class Ping(Message, frozen=True, tag=4):
    """Check that the other end is alive; it answers with Pong."""


class Pong(Message, frozen=True, tag=5):
    """The answer to Ping."""


class MessagePart(Message, frozen=True, tag=6):
    """Part of a long message; each direction sends one long message at a time."""

    content: bytes
    is_last: bool


# ---- frontend to owner -----------------------------------------------------------------------------------------------


class Connected(Message, frozen=True, tag=10):
    """Assigns a number to a client's connection."""

    connection: int
    client_host: str
    principal: str


class Disconnected(Message, frozen=True, tag=11):
    """The client or its broker has disconnected: drop the pending requests of the connection.

    `end`: how it ended, a value of `ConnectionEnd`; None if the client is still connected, or the sender is of a
    version that does not report it. `age_ms`: how long ago it ended.
    """

    connection: int
    end: str | None = None
    age_ms: int = 0


class Forwarded(Message, frozen=True, tag=12):
    """A client's request, without its length.

    `member_uuid`: the UUID to use in a new member id, for a JoinGroup; else "". A JoinGroup that is resent to the next
    owner has the same UUID, so it does not create a second member.
    """

    connection: int
    member_uuid: str
    frame: bytes


class BrokerAnswered(Message, frozen=True, tag=13):
    """The broker's response to a question, without the correlation id; None: the client or the broker disconnected."""

    question: int
    payload: bytes | None


class ListOwned(Message, frozen=True, tag=14):
    """Asks for the owner's groups; the responses repeat `question`."""

    question: int


class ReportedHeartbeat(msgspec.Struct, frozen=True, array_like=True):
    """A heartbeat that the frontend has answered: the client's connection, the request, and how long ago that was."""

    connection: int
    frame: bytes
    age_ms: int


class HeartbeatReport(Message, frozen=True, tag=15):
    """Members whose heartbeats the frontend has answered since the last message; asks how much longer it may answer.

    `sent_ms`: by the frontend's clock, repeated in the response. This message is never long (see peer_connection.py),
    so it arrives before later ones.
    """

    sent_ms: int
    members: list[ReportedHeartbeat]


# ---- owner to frontend -----------------------------------------------------------------------------------------------


class Answered(Message, frozen=True, tag=20):
    """The response to the connection's request, without the correlation id.

    `is_brokers`: it is the response of the client's broker about the group, so any other owner would answer the same.
    """

    connection: int
    payload: bytes
    is_brokers: bool = False


class Relay(Message, frozen=True, tag=21):
    """The request is for the broker: relay it unchanged."""

    connection: int


class NotOwned(Message, frozen=True, tag=22):
    """This process does not own the group, or not yet, or no longer."""

    connection: int


class Closed(Message, frozen=True, tag=23):
    """The client has violated the protocol: close its connection."""

    connection: int
    fault: str
    reason: str


class AskBroker(Message, frozen=True, tag=24):
    """Ask the broker this on the client's connection; `rest` starts after the correlation id."""

    connection: int
    question: int
    api_key: int
    api_version: int
    rest: bytes


class OwnedGroup(msgspec.Struct, frozen=True, array_like=True):
    """A group of the owner. `protocol_type`, `state`: None if the group is not in the log.

    `is_owned`: its shadow is in the upstream group, or about to join. `has_shadow`: the same, or the shadow is about to
    leave. `is_in`: upstream lists the group because of the shadow.
    """

    group_id: str
    protocol_type: str | None
    state: str | None
    is_owned: bool
    has_shadow: bool
    is_in: bool


class Owned(Message, frozen=True, tag=25):
    """Some of the owner's groups; more follow, unless `is_last`. `error`: Kafka's error code for all of them.

    This message is never long (see peer_connection.py), so the last one arrives last.
    """

    question: int
    groups: list[OwnedGroup]
    error: int
    is_last: bool


class Delegated(Message, frozen=True, tag=26):
    """The response to the connection's heartbeat, which the frontend may reuse for equal ones until the group changes.

    `valid_ms`: how long it may reuse it, counted from when it sent the request; after that, the client's authorization
    must be checked again. The owner's lease of the partition is a second limit (see Leases).
    """

    connection: int
    payload: bytes
    group_id: str
    member_id: str
    valid_ms: int


class Revoked(Message, frozen=True, tag=27):
    """The group has changed: the frontend must forward its members' heartbeats to the owner again."""

    group_id: str


class Leases(Message, frozen=True, tag=28):
    """The response to HeartbeatReport: how long the frontend may respond, by partition, counted from `sent_ms`."""

    sent_ms: int
    left_ms: dict[int, int]


class RequestSuperseded(Message, frozen=True, tag=29):
    """The connection's request will never be answered: the member has sent it again, perhaps on another connection."""

    connection: int


HIGHEST_TAG: Final = 29
"""The highest tag of all messages."""

AnyMessage = (
    Challenge
    | Proof
    | Welcome
    | Denied
    | Ping
    | Pong
    | MessagePart
    | Connected
    | Disconnected
    | Forwarded
    | BrokerAnswered
    | ListOwned
    | HeartbeatReport
    | Answered
    | Relay
    | NotOwned
    | Closed
    | AskBroker
    | Owned
    | Delegated
    | Revoked
    | Leases
    | RequestSuperseded
)

_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final = msgspec.msgpack.Decoder(AnyMessage)


class BadMessage(Exception):
    """Bytes that are not a valid message."""


def encode(message: AnyMessage) -> bytes:
    """Return the bytes after the length."""
    return _ENCODER.encode(message)


def decode(encoded: bytes | bytearray) -> AnyMessage:
    """Decode a message. Raises BadMessage."""
    try:
        message: AnyMessage = _DECODER.decode(encoded)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise BadMessage(str(error)) from error
    return message
