"""The messages between two processes of one event log, and their bytes: msgpack, behind a length of four bytes.

Pure. What belongs here: the messages. What it must not know: what is done about them.

A link is opened by the process that clients are connected to, the *edge*, to the one that owns their groups. On it a
client's connection has a number, and at most one request under way, as Kafka handles one request of a connection at a
time. So no message needs another number, but for questions to the broker, of which a request may have several.

Kafka's Envelope carries a request and its answer, and has no place for the rest: that a request is the broker's, a
question to it on the client's connection, a client that has gone. One form for all is simpler than two.
"""

from struct import Struct
from typing import Final

import msgspec

LEVEL: Final = 1
"""The level of these messages: a process of another level is refused."""

LENGTH: Final = Struct(">I")


class Message(msgspec.Struct, frozen=True, array_like=True):
    """Base of all messages."""


# ---- the proof: who accepts begins -----------------------------------------------------------------------------------


class Challenge(Message, frozen=True, tag=0):
    """`nonce`: random bytes of who accepts."""

    level: int
    nonce: bytes


class Proof(Message, frozen=True, tag=1):
    """`log`: the identity of the event log. `node_id`: who asks. `wanted_node_id`: who is asked for.

    `knows`: the highest tag of the messages that the sender understands. It is no part of what the MAC covers: who
    changes it on the way makes the owner keep a message to itself, as it does for a process of a former version.
    """

    level: int
    log: str
    node_id: int
    wanted_node_id: int
    nonce: bytes
    mac: bytes
    knows: int = 28


class Welcome(Message, frozen=True, tag=2):
    """The proof of who accepts."""

    mac: bytes


class Denied(Message, frozen=True, tag=3):
    """The reason for people; the connection is closed."""

    reason: str


# ---- the connection itself -------------------------------------------------------------------------------------------


class Ping(Message, frozen=True, tag=4):
    """Does the other end live? It answers at once."""


class Pong(Message, frozen=True, tag=5):
    """It does."""


class MessagePart(Message, frozen=True, tag=6):
    """Some bytes of a long message, of one at a time in each direction."""

    content: bytes
    is_last: bool


# ---- edge to owner ---------------------------------------------------------------------------------------------------


class Connected(Message, frozen=True, tag=10):
    """A client's connection has a number from now on."""

    connection: int
    client_host: str
    principal: str


class Disconnected(Message, frozen=True, tag=11):
    """The client, or its broker, has gone: what it waited for is dropped.

    `end`: a value of `ConnectionEnd`, and `age_ms`: how long ago that was; None: the client is still connected, or the
    process is of a version that does not say.
    """

    connection: int
    end: str | None = None
    age_ms: int = 0


class Forwarded(Message, frozen=True, tag=12):
    """A client's request, without its length. `member_uuid`: of the member id that a JoinGroup proposes; else empty.

    A JoinGroup that is sent again, to the next owner, has the same: so it makes no second member.
    """

    connection: int
    member_uuid: str
    frame: bytes


class BrokerAnswered(Message, frozen=True, tag=13):
    """The broker's answer to a question, from behind the correlation id; None: the client or the broker has gone."""

    question: int
    payload: bytes | None


class ListOwned(Message, frozen=True, tag=14):
    """Ask which groups the owner has; `question` is in the answers."""

    question: int


class HeardMember(msgspec.Struct, frozen=True, array_like=True):
    """A heartbeat that the edge has answered: the client's connection, the request, and how long ago that was."""

    connection: int
    frame: bytes
    age_ms: int


class HeardMembers(Message, frozen=True, tag=15):
    """The members whose heartbeats the edge has answered since the last one; ask how long it may answer more.

    `sent_ms`: by the edge's clock, which comes back with the answer. It is never long (see peer_connection.py), so
    that it comes before what is sent behind it.
    """

    sent_ms: int
    members: list[HeardMember]


# ---- owner to edge ---------------------------------------------------------------------------------------------------


class Answered(Message, frozen=True, tag=20):
    """The answer to the connection's request, from behind the correlation id.

    `is_brokers`: it is what the client's broker says of the group, so that any other owner would answer the same.
    """

    connection: int
    payload: bytes
    is_brokers: bool = False


class Relay(Message, frozen=True, tag=21):
    """The request is the broker's: relay it as it came."""

    connection: int


class NotOwned(Message, frozen=True, tag=22):
    """The group is not this process's, any more or yet."""

    connection: int


class Closed(Message, frozen=True, tag=23):
    """The client has broken the protocol: its connection is to be closed."""

    connection: int
    fault: str
    reason: str


class AskBroker(Message, frozen=True, tag=24):
    """Ask the broker this on the client's connection; `rest` begins behind the correlation id."""

    connection: int
    question: int
    api_key: int
    api_version: int
    rest: bytes


class OwnedGroup(msgspec.Struct, frozen=True, array_like=True):
    """A group of the owner's. `protocol_type`, `state`: None of one that the log does not have.

    `is_owned`: its shadow is in it upstream, or on its way in; `has_shadow`: or on its way out; `is_in`: upstream lists
    the group because of it.
    """

    group_id: str
    protocol_type: str | None
    state: str | None
    is_owned: bool
    has_shadow: bool
    is_in: bool


class Owned(Message, frozen=True, tag=25):
    """Some of the owner's groups; more follow, unless it is the last. `error`: Kafka's code for all of them.

    It is never long (see peer_connection.py), so that the last one comes last.
    """

    question: int
    groups: list[OwnedGroup]
    error: int
    is_last: bool


class Granted(Message, frozen=True, tag=26):
    """The answer to the connection's heartbeat, which the edge may give to equal ones until the group changes.

    `valid_ms`: and for no longer than this since it sent the request, as the client's authorization has to be asked for
    again; and while the owner's lease of the partition lasts (see Leases).
    """

    connection: int
    payload: bytes
    group_id: str
    member_id: str
    valid_ms: int


class Revoked(Message, frozen=True, tag=27):
    """The group has changed: heartbeats of its members are the owner's to answer."""

    group_id: str


class Leases(Message, frozen=True, tag=28):
    """The answer to HeardMembers: how long answers may be given, by partition, counted from its `sent_ms`."""

    sent_ms: int
    left_ms: dict[int, int]


class RequestSuperseded(Message, frozen=True, tag=29):
    """The connection's request is never answered: the member has sent it again, perhaps on another connection."""

    connection: int


KNOWN: Final = 29
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
    | HeardMembers
    | Answered
    | Relay
    | NotOwned
    | Closed
    | AskBroker
    | Owned
    | Granted
    | Revoked
    | Leases
    | RequestSuperseded
)

_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final = msgspec.msgpack.Decoder(AnyMessage)


class BadMessage(Exception):
    """Bytes that are no message of another process's."""


def encode(message: AnyMessage) -> bytes:
    """Return the bytes behind the length."""
    return _ENCODER.encode(message)


def decode(encoded: bytes | bytearray) -> AnyMessage:
    """Raises BadMessage."""
    try:
        message: AnyMessage = _DECODER.decode(encoded)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise BadMessage(str(error)) from error
    return message
