"""The plan for a client's request: handle it here or relay it, by its API, version and first bytes.

What belongs here: what a conversation is told to do. What it must not know: which request has which plan.
"""

from collections.abc import Callable

import msgspec

from muster.coordinator.group.settings import INT32_MAX
from muster.events.steps import Steps

Rewrite = Callable[[bytes], Steps[bytes]]
"""Changes an answer, from its bytes behind the correlation id. Raises ProtocolError."""

Inspect = Callable[[bytes], "RequestPlan"]
"""Plans a request by its first bytes, without its length.

Raises ProtocolError, and IndexError or struct.error if more bytes are needed.
"""

CheckStream = Callable[[bytes], None]
"""Checks the next bytes of a relayed request, its length included, before the broker gets them.

Raises ProtocolError if the broker must not get them.
"""


class RequestPlan(msgspec.Struct, frozen=True):
    """Whether a request is handled here or relayed, and how its answer is rewritten.

    `inspect`: the first bytes decide, and all else here does not count. `handled_bytes_max`: this API's own limit of a
    request that is handled here. `is_answered`: the broker answers it, if it is relayed. `delays_changed`: an answer
    that `rewrite` has changed is delayed, and so are those behind it. `check_stream`: checks its bytes as they pass.
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
