"""The encoding of messages between processes."""

from typing import get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.coordinator.peers.link.peer_messages import (
    Answered,
    AnyMessage,
    AskBroker,
    BadMessage,
    BrokerAnswered,
    Challenge,
    Closed,
    Connected,
    Delegated,
    Denied,
    Disconnected,
    Forwarded,
    HeartbeatReport,
    Leases,
    ListOwned,
    MessagePart,
    NotOwned,
    Owned,
    OwnedGroup,
    Ping,
    Pong,
    Proof,
    Relay,
    ReportedHeartbeat,
    RequestSuperseded,
    Revoked,
    Welcome,
    decode,
    encode,
)

KINDS = (
    Challenge,
    Proof,
    Welcome,
    Denied,
    Ping,
    Pong,
    MessagePart,
    Connected,
    Disconnected,
    Forwarded,
    BrokerAnswered,
    ListOwned,
    Answered,
    Relay,
    NotOwned,
    Closed,
    AskBroker,
    Owned,
    Delegated,
    Revoked,
    HeartbeatReport,
    Leases,
    RequestSuperseded,
)


def any_message() -> st.SearchStrategy[AnyMessage]:
    """Any message, with any values."""
    numbers = st.integers(-(2**31), 2**31 - 1)
    fields = {
        int: numbers,
        str: st.text(max_size=20),
        bytes: st.binary(max_size=50),
        bool: st.booleans(),
        str | None: st.none() | st.text(max_size=20),
        bytes | None: st.none() | st.binary(max_size=50),
    }
    lists = {
        list[OwnedGroup]: st.lists(st.builds(OwnedGroup), max_size=3),
        list[ReportedHeartbeat]: st.lists(
            st.builds(ReportedHeartbeat, numbers, st.binary(max_size=50), numbers), max_size=3
        ),
        dict[int, int]: st.dictionaries(numbers, numbers, max_size=3),
    }

    def of(kind: type) -> st.SearchStrategy[AnyMessage]:
        types = {each.name: each.type for each in msgspec.structs.fields(kind)}
        return st.builds(kind, **{name: (fields | lists)[type_] for name, type_ in types.items()})

    return st.one_of([of(kind) for kind in KINDS])


@given(any_message())
def test_a_message_is_read_as_it_was_written(message: AnyMessage) -> None:
    assert decode(encode(message)) == message


def test_each_message_has_a_number_of_its_own() -> None:
    """The number identifies it, also for later versions."""
    assert set(KINDS) == set(get_args(AnyMessage))
    tags = {kind.__name__: kind.__struct_config__.tag for kind in KINDS}
    assert tags == {
        "Challenge": 0,
        "Proof": 1,
        "Welcome": 2,
        "Denied": 3,
        "Ping": 4,
        "Pong": 5,
        "MessagePart": 6,
        "Connected": 10,
        "Disconnected": 11,
        "Forwarded": 12,
        "BrokerAnswered": 13,
        "ListOwned": 14,
        "HeartbeatReport": 15,
        "Answered": 20,
        "Relay": 21,
        "NotOwned": 22,
        "Closed": 23,
        "AskBroker": 24,
        "Owned": 25,
        "Delegated": 26,
        "Revoked": 27,
        "Leases": 28,
        "RequestSuperseded": 29,
    }


NESTED = b"\x93\x15\x01" + b"\x91" * 4_000 + b"\x01"
"""A Relay with an additional field of nested lists."""


@pytest.mark.parametrize(
    "encoded", [b"", b"\xc1", b"\x93\x0a", b"\x92\x63\x01", encode(Relay(1))[:-1], b"\x90", NESTED]
)
def test_invalid_messages_are_refused(encoded: bytes) -> None:
    with pytest.raises(BadMessage):
        decode(encoded)


def test_an_answer_of_a_version_that_does_not_name_the_owner() -> None:
    """Earlier versions have no such field; their readers skip it."""
    tag, *_ = msgspec.msgpack.decode(encode(Answered(7, b"payload")))
    assert decode(msgspec.msgpack.encode([tag, 7, b"payload"])) == Answered(7, b"payload", is_brokers=False)
