"""Limits the entries of relayed requests that would harm other clients; a larger request is refused, not relayed.

A response that is rewritten (rewriting.py) is buffered, and each entry takes time: two million keys in one 4 MB
FindCoordinator took 48 MB and 9 s. Two million groups in one OffsetFetch keep a broker busy for more than 30 s
(benchmarks/README.md). These requests have the same limits as where Muster answers them itself (wire/bounds.py). All
other relayed requests are left to the broker's limits.
"""

from collections.abc import Mapping
from struct import Struct
from typing import Final

from kio.index import load_request_schema

from muster.coordinator.sidecar.messages.request_plan import Inspect, RequestPlan
from muster.coordinator.sidecar.messages.request_start import body_at, read_varint
from muster.coordinator.sidecar.messages.rewriting import FIND_COORDINATOR, METADATA
from muster.coordinator.wire.api import Fault, ProtocolError
from muster.coordinator.wire.bounds import bound_of
from muster.events.steps import TooManyEntries

OFFSET_FETCH: Final = 9
_INT32 = Struct(">i")
_BEFORE_ENTRIES: Final[Mapping[int, tuple[range, int]]] = {
    METADATA: (range(14), 0),
    OFFSET_FETCH: (range(8, 11), 0),
    FIND_COORDINATOR: (range(4, 7), 1),
}
"""Keyed by API key: the versions whose first array is counted, and the bytes of the body before it."""


def entry_check(api_key: int, api_version: int, plan: RequestPlan) -> Inspect | None:
    """Return a check of the entry count, after which `plan` applies; None for APIs without a limit here."""
    versions, skipped = _BEFORE_ENTRIES.get(api_key, (range(0), 0))
    if api_version not in versions:
        return None
    request = load_request_schema(api_key, api_version)
    flexible, entries_max = bool(request.__flexible__), bound_of(api_key).entries_max

    def inspect(frame: bytes) -> RequestPlan:
        at = body_at(frame, flexible=flexible) + skipped
        entries = read_varint(frame, at)[0] - 1 if flexible else _INT32.unpack_from(frame, at)[0]
        if entries > entries_max:
            reason = TooManyEntries(entries, entries_max)
            raise ProtocolError(Fault.TOO_MANY_ENTRIES, f"{request.__name__} v{api_version} is refused: {reason}")
        return plan

    return inspect
