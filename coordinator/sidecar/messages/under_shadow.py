"""A commit under another name: generation, member id and instance id of a request replaced, all else left as it is.

What the broker says to it of the member is said of the shadow (22, 25, 82), and nothing of the client, whose membership
was found good here: it would rejoin, leave or die of that. It is told to try again instead (14), which is judged anew;
if its generation is over here, too, it learns it then.

OffsetCommit: v7 adds the group instance id, v8 is flexible. TxnOffsetCommit: from v3 on it names a member, and is
flexible. The topics, which may be many, are not looked at.
"""

from collections.abc import Callable
from functools import cache
from struct import Struct

from kio.index import load_response_schema
from kio.schema.errors import ErrorCode
from kio.serial import readers

from muster.coordinator.load.steps import Steps
from muster.coordinator.sidecar.messages.plan import Rewrite
from muster.coordinator.sidecar.messages.rewriting import rewrite_of
from muster.coordinator.upstream.shadow import Identity
from muster.coordinator.wire.codec.reading import tagged_fields_size
from muster.coordinator.wire.codec.splicing import Pieces, change_inner_items
from muster.coordinator.wire.codec.writing import write_uvarint
from muster.coordinator.wire.messages import HEADER_START_BYTES

OFFSET_COMMIT, TXN_OFFSET_COMMIT = 8, 28

_KEY_VERSION = Struct(">hh")
_INT16, _INT32 = Struct(">h"), Struct(">i")
_PRODUCER_BYTES = 8 + 2  # id and epoch
_FLEXIBLE_FROM = {OFFSET_COMMIT: 8, TXN_OFFSET_COMMIT: 3}
_ABOUT_SHADOW = frozenset(
    _INT16.pack(each)
    for each in (ErrorCode.illegal_generation, ErrorCode.unknown_member_id, ErrorCode.fenced_instance_id)
)
_TRY_AGAIN = _INT16.pack(ErrorCode.coordinator_load_in_progress)
_INSTANCE_FROM = {OFFSET_COMMIT: 7, TXN_OFFSET_COMMIT: 3}


def under_shadow(frame: bytes, identity: Identity) -> bytes:
    """The frame of a commit, without its length, with the identity in it; it was read before, so that it is whole."""
    api_key, api_version = _KEY_VERSION.unpack_from(frame)
    flexible = api_version >= _FLEXIBLE_FROM[api_key]
    at = HEADER_START_BYTES + _string_size(frame, HEADER_START_BYTES, flexible=False)  # the client id
    if flexible:
        at += tagged_fields_size(frame, at)
    if api_key == TXN_OFFSET_COMMIT:
        at += _string_size(frame, at, flexible=flexible)
    at += _string_size(frame, at, flexible=flexible)  # the group id
    if api_key == TXN_OFFSET_COMMIT:
        at += _PRODUCER_BYTES
    out = bytearray(frame[:at])
    at += _INT32.size
    at += _string_size(frame, at, flexible=flexible)
    out += _INT32.pack(identity.generation_id)
    _write_string(out, identity.member_id, flexible=flexible)
    if api_version >= _INSTANCE_FROM[api_key]:
        at += _string_size(frame, at, flexible=flexible)
        _write_string(out, identity.group_instance_id, flexible=flexible)
    out += frame[at:]
    return bytes(out)


def not_of_shadow(api_key: int, api_version: int, doubted: Callable[[], None]) -> Rewrite:
    """For the answer to such a commit. `doubted` is called when the broker has not known the shadow by its identity."""
    changed = _without_shadow(api_key, api_version)

    def rewrite(payload: bytes) -> Steps[bytes]:
        if not any(code in payload for code in _ABOUT_SHADOW):  # as good as always
            return payload
        told = yield from changed(payload)
        if told != payload:
            doubted()
        return told

    return rewrite


@cache
def _without_shadow(api_key: int, api_version: int) -> Rewrite:
    response = load_response_schema(api_key, api_version)
    return rewrite_of(response, change_inner_items(response, "topics", "partitions", _try_again))


def _try_again(partition: Pieces) -> Pieces:
    return partition | {"error_code": _TRY_AGAIN} if partition["error_code"] in _ABOUT_SHADOW else partition


def _string_size(frame: bytes, at: int, *, flexible: bool) -> int:
    """Of a string that may be null, its length counted in."""
    if flexible:
        length, size = readers.read_unsigned_varint(frame, at)
        return size + max(0, length - 1)
    return _INT16.size + max(0, int(_INT16.unpack_from(frame, at)[0]))


def _write_string(out: bytearray, text: str, *, flexible: bool) -> None:
    encoded = text.encode()
    if flexible:
        write_uvarint(out, len(encoded) + 1)
    else:
        out += _INT16.pack(len(encoded))
    out += encoded
