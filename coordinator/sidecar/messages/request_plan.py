"""The plan for a client's request: handle it here or relay it, by its API, version and first bytes."""

from collections.abc import Callable

import msgspec

from muster.coordinator.group.settings import INT32_MAX
from muster.events.steps import Steps

Rewrite = Callable[[bytes], Steps[bytes]]
"""Changes a response, given its bytes after the correlation id. Raises ProtocolError."""

Inspect = Callable[[bytes], "RequestPlan"]
"""Plans a request by its first bytes after the length.

Raises ProtocolError, and IndexError or struct.error if more bytes are needed.
"""

CheckStream = Callable[[bytes], None]
"""Checks the next bytes of a relayed request, its length included, before the broker gets them.

Raises ProtocolError if the broker must not get them.
"""


class RequestPlan(msgspec.Struct, frozen=True):
    """Says whether a request is handled here or relayed, and how its response is rewritten.

    `inspect`: plans the request by its first bytes; the other fields are ignored then. `handled_bytes_max`: this API's
    own size limit for a handled request. `is_answered`: the broker answers it, if it is relayed. `delays_changed`: a
    response that `rewrite` has changed is delayed, and so are those behind it. `check_stream`: checks the request's
    bytes as they pass.
    """

    is_handled: bool = False
    rewrite: Rewrite | None = None
    handled_bytes_max: int = INT32_MAX
    inspect: Inspect | None = None
    is_answered: bool = True
    delays_changed: bool = False
    check_stream: CheckStream | None = None


RELAY = RequestPlan()

PlanOf = Callable[[int, int], RequestPlan]
"""Plans a request by API key and version. Raises ProtocolError if it can be neither relayed nor handled."""
