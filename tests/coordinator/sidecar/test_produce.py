"""The acks of a Produce: read from its first bytes in every version."""

import itertools
import struct
from datetime import timedelta

import pytest
from kio.index import load_request_schema
from kio.serial.errors import SerialError

from coordinator.sidecar.produce import PREFIX_BYTES_MAX, PRODUCE, acks_of
from coordinator.wire.writing import write_uvarint
from tests.coordinator.kio_client import filled
from tests.coordinator.sidecar.scripted_broker import asking

TOPICS = [
    {"name": "orders", "topic_id": None, "partition_data": [{"index": 3, "records": b"r" * 70}]},
]
VERSIONS = range(14)
KIO_KNOWS_FROM = 3
FLEXIBLE = [version for version in VERSIONS if version >= 9]


def produce(version: int, *, acks: int, client_id: str | None = "shop", transactional_id: str | None = None) -> bytes:
    """A whole request, without its length."""
    fields = {"transactional_id": transactional_id, "acks": acks, "timeout": timedelta(seconds=3), "topic_data": TOPICS}
    if version >= KIO_KNOWS_FROM:
        return asking(filled(load_request_schema(PRODUCE, version), fields), client_id=client_id)[4:]
    frame = produce(KIO_KNOWS_FROM, acks=acks, client_id=client_id)  # which has a null more, and is the same else
    at = 8 + 2 + len(client_id or "")
    return frame[:2] + version.to_bytes(2, "big") + frame[4:at] + frame[at + 2 :]


@pytest.mark.parametrize("version", VERSIONS)
def test_the_acks_are_found_behind_the_names(version: int) -> None:
    for acks, client_id, transactional_id in itertools.product(
        [-1, 0, 1], [None, "", "shop", "x" * 32_767], [None, "", "orders-1", "t" * 32_767]
    ):
        frame = produce(version, acks=acks, client_id=client_id, transactional_id=transactional_id)
        assert acks_of(frame, version) == acks


@pytest.mark.parametrize("version", FLEXIBLE)
@pytest.mark.parametrize("acks", [-1, 0, 1])
def test_tagged_fields_of_the_header_are_stepped_over(version: int, acks: int) -> None:
    frame = produce(version, acks=acks)
    at = 8 + 2 + len("shop")
    assert frame[at] == 0  # no tagged fields, as kio writes the header
    tagged = bytearray([2])
    for tag, content in ((0, b"abc"), (700, b"z" * 300)):
        write_uvarint(tagged, tag)
        write_uvarint(tagged, len(content))
        tagged += content
    assert acks_of(frame[:at] + bytes(tagged) + frame[at + 1 :], version) == acks


@pytest.mark.parametrize("version", VERSIONS)
def test_a_beginning_without_the_acks_says_so(version: int) -> None:
    """However short it is: then more of it is waited for. No beginning gives acks that are not there."""
    frame = produce(version, acks=0, transactional_id="orders-1")
    known = []
    for size in range(8, len(frame)):
        try:
            known.append(acks_of(frame[:size], version))
        except (SerialError, struct.error, IndexError):
            assert not known, f"the acks were known before {size} bytes"
    assert set(known) == {0}


def test_the_names_stand_within_the_bound() -> None:
    """The longest that a client can give, in the version that has most before the acks."""
    frame = produce(13, acks=1, client_id="x" * 32_767, transactional_id="t" * 90_000)
    assert acks_of(frame[:PREFIX_BYTES_MAX], 13) == 1
