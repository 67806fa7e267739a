"""Rewrites a commit to the shadow's identity: generation, member id and instance id; everything else is copied.

Errors about the member (22, 25, 82) in the broker's response concern the shadow. The client's own membership was valid
here, but it would rejoin, leave or stop because of them. So it gets COORDINATOR_LOAD_IN_PROGRESS (14) instead, and its
retry is checked again; if its generation has ended here too, the retry says so.

OffsetCommit: v7 adds the group instance id, v8 is flexible. TxnOffsetCommit: from v3 on it names a member and is
flexible. The topics, of which there may be many, are not read.
"""

from collections.abc import Callable
from functools import cache

from kio.index import load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode

from muster.coordinator.sidecar.messages.request_plan import Rewrite
from muster.coordinator.sidecar.messages.request_start import body_at
from muster.coordinator.sidecar.messages.rewriting import rewrite_of
from muster.coordinator.upstream.shadow import CommitIdentity
from muster.coordinator.wire.messages import KEY_AND_VERSION
from muster.events.kafka.codec.primitives import INT16, INT32
from muster.events.kafka.codec.splicing import Pieces, change_inner_items, cut_struct, text_piece
from muster.events.kafka.codec.walk import untagged
from muster.events.steps import Steps, finished

OFFSET_COMMIT, TXN_OFFSET_COMMIT = 8, 28

_GENERATION = frozenset({"generation_id", "generation_id_or_member_epoch"})
_INSTANCE = "group_instance_id"
_ABOUT_SHADOW = frozenset(
    INT16.pack(each)
    for each in (ErrorCode.illegal_generation, ErrorCode.unknown_member_id, ErrorCode.fenced_instance_id)
)
_TRY_AGAIN = INT16.pack(ErrorCode.coordinator_load_in_progress)


def with_identity(frame: bytes, identity: CommitIdentity) -> bytes:
    """Put this identity into the frame of a commit (without its length), which must be known to decode."""
    return _naming(*KEY_AND_VERSION.unpack_from(frame))(frame, identity)


@cache
def _naming(api_key: int, api_version: int) -> Callable[[bytes, CommitIdentity], bytes]:
    request = load_request_schema(api_key, api_version)
    flexible = bool(request.__flexible__)
    names = [field.name for field in untagged(request)]
    (generation,) = _GENERATION.intersection(names)
    has_instance = _INSTANCE in names
    cut = cut_struct(request, _INSTANCE if has_instance else "member_id")

    def name(frame: bytes, identity: CommitIdentity) -> bytes:
        begins = body_at(frame, flexible=flexible)
        pieces, ends = finished(cut(frame, begins))
        pieces[generation] = INT32.pack(identity.generation_id)
        pieces["member_id"] = text_piece(identity.member_id, flexible=flexible)
        if has_instance:
            pieces[_INSTANCE] = text_piece(identity.group_instance_id, flexible=flexible)
        return b"".join((frame[:begins], *pieces.values(), frame[ends:]))

    return name


def hide_shadow_errors(api_key: int, api_version: int, doubted: Callable[[], None]) -> Rewrite:
    """Return a Rewrite that replaces errors about the shadow and calls `doubted` if there were any."""
    replace = _without_shadow(api_key, api_version)

    def rewrite(payload: bytes) -> Steps[bytes]:
        if not any(code in payload for code in _ABOUT_SHADOW):  # almost always
            return payload
        rewritten = yield from replace(payload)
        if rewritten != payload:
            doubted()
        return rewritten

    return rewrite


@cache
def _without_shadow(api_key: int, api_version: int) -> Rewrite:
    response = load_response_schema(api_key, api_version)
    return rewrite_of(response, change_inner_items(response, "topics", "partitions", _try_again))


def _try_again(partition: Pieces) -> Pieces:
    return partition | {"error_code": _TRY_AGAIN} if partition["error_code"] in _ABOUT_SHADOW else partition
