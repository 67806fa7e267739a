"""Frames from a seed: what a client may send by mistake, or with malice.

A frame starts out valid: kio makes it from any values that its schema allows. Then at most one thing is done to it.
"""

from collections.abc import Callable, Iterable
from io import BytesIO
from random import Random
from typing import Any

import msgspec
from kio.index import load_request_schema
from kio.serial import entity_writer

from muster.coordinator.wire.api import Offered
from tests.coordinator.sidecar.messages.any_answer import any_answer
from tests.coordinator.wire.smallest import arrays_of, request_of

HEADER_BYTES = 8
ENTRIES_MAX = 200_000
HOSTILE = (
    b"\x7f\xff\xff\xff",
    b"\x80\x00\x00\x00",
    b"\xff\xff\xff\xff",
    b"\xff\xff\xff\xfe",
    b"\x00\x1e\x84\x80",
    b"\x7f\xff",
    b"\x80\x00",
    b"\xff\xfe",
    b"\xff\xff\xff\xff\x0f",
    b"\xff\xff\xff\xff\x07",
    b"\x80\x80\x80\x80\x80\x01",
    b"\x80\x89\x7a",
    b"\xff" * 12,
    b"\x80" * 300,
    b"\x00",
)
"""Counts and lengths: two billion, negative ones, varints that are too long or out of range."""


class Frame(msgspec.Struct, frozen=True, kw_only=True):
    """`content`: the bytes, with their length in front; `told`: a description."""

    told: str
    content: bytes
    is_whole: bool = True
    """True if the frame is as long as its length says."""


class Frames:
    """The generator of frames of these APIs. The same seed gives the same frames."""

    def __init__(self, apis: Iterable[Offered], seed: int) -> None:
        self._versions = [(api.name, api.key, version) for api in apis for version in api.versions]
        self._random = Random(seed)

    def next(self) -> Frame:
        """One more."""
        random = self._random
        name, key, version = random.choice(self._versions)
        harm = random.choices(_HARMS, weights=[weight for _, weight in _WEIGHTS])[0]
        content = harm(random, key, version)
        text = f"{name} v{version}, {harm.__name__.strip('_').replace('_', ' ')}: {content[:400].hex()}"
        if harm in (_cut_short, _of_a_long_length):
            return Frame(told=text, content=content, is_whole=False)
        if harm is _of_a_hostile_length:
            return Frame(told=text, content=content)
        return Frame(told=text, content=len(content).to_bytes(4, "big") + content)


def _valid(random: Random, key: int, version: int) -> bytes:
    request: Any = load_request_schema(key, version)
    header = request.__header_schema__(
        request_api_key=key, request_api_version=version, correlation_id=random.getrandbits(31), client_id="fuzz"
    )
    out = BytesIO()
    entity_writer(type(header))(out, header)
    entity_writer(request)(out, any_answer(request, random))
    return out.getvalue()


def _cut_short(random: Random, key: int, version: int) -> bytes:
    """The rest never comes."""
    content = _valid(random, key, version)
    whole = len(content).to_bytes(4, "big") + content
    return whole[: random.randrange(len(whole))]


def _cut_within(random: Random, key: int, version: int) -> bytes:
    """The length is right, and the body ends too early."""
    content = _valid(random, key, version)
    return content[: random.randrange(HEADER_BYTES, len(content) + 1)]


def _with_a_hostile_count(random: Random, key: int, version: int) -> bytes:
    content = _valid(random, key, version)
    at = random.randrange(HEADER_BYTES, len(content) + 1)
    hostile = random.choice(HOSTILE)
    return content[:at] + hostile + content[at + random.choice([0, len(hostile)]) :]


def _with_other_bytes(random: Random, key: int, version: int) -> bytes:
    content = bytearray(_valid(random, key, version))
    for _ in range(random.randrange(1, 6)):
        content[random.randrange(HEADER_BYTES, len(content))] = random.getrandbits(8)
    return bytes(content)


def _of_random_bytes(random: Random, key: int, version: int) -> bytes:
    return key.to_bytes(2, "big") + version.to_bytes(2, "big") + random.randbytes(random.randrange(4, 200))


def _of_another_api(random: Random, key: int, version: int) -> bytes:
    return random.randbytes(random.choice([2, 4])) + _valid(random, key, version)[4:]


def _of_a_hostile_length(random: Random, key: int, version: int) -> bytes:
    length = random.choice([-1, -(2**31), 0, 7, 2**31 - 1, 104_857_601])
    return length.to_bytes(4, "big", signed=True) + _valid(random, key, version)


def _of_a_long_length(random: Random, key: int, version: int) -> bytes:
    """Refused, or within the bounds of its API, so that the rest is waited for."""
    content = _valid(random, key, version)
    return random.randrange(len(content) + 1, 2**31).to_bytes(4, "big") + content


def _of_many_entries(random: Random, key: int, version: int) -> bytes:
    paths = list(arrays_of(load_request_schema(key, version)))
    if not paths:
        return _valid(random, key, version)
    return request_of(key, version, random.choice(paths), random.choice([1, 600, 5_000, ENTRIES_MAX]))


_WEIGHTS: list[tuple[Callable[[Random, int, int], bytes], int]] = [
    (_valid, 10),
    (_cut_short, 10),
    (_cut_within, 15),
    (_with_a_hostile_count, 35),
    (_with_other_bytes, 15),
    (_of_random_bytes, 7),
    (_of_another_api, 3),
    (_of_a_hostile_length, 3),
    (_of_a_long_length, 3),
    (_of_many_entries, 2),
]
_HARMS = [harm for harm, _ in _WEIGHTS]
