"""What is done with a request of a client's, as its API, its version and its beginning tell.

What belongs here: what a conversation is told to do. What it must not know: who says so, and for which request.
"""

from collections.abc import Callable

import msgspec

from muster.coordinator.group.settings import INT32_MAX
from muster.events.steps import Steps

Rewrite = Callable[[bytes], Steps[bytes]]
"""From what follows the correlation id of an answer to what the client gets instead. Raises ProtocolError."""

Inspect = Callable[[bytes], "RequestPlan"]
"""What is done with a request by what it begins with, given its first bytes without its length. Raises ProtocolError,
and IndexError or struct.error when more of it has to come."""

CheckStream = Callable[[bytes], None]
"""Looks at a relayed request, from its length on, before the broker gets it: at the next bytes. Raises ProtocolError
if the broker must not get them."""


class RequestPlan(msgspec.Struct, frozen=True):
    """What is done with a request: handled here, or relayed, and its answer perhaps rewritten.

    `look`: what the request begins with decides, and all else here counts for nothing. `handled_bytes_max`: of one that
    is handled here, whatever others may have. `is_answered`: by the broker, if it is relayed. `delays_changed`: an
    answer that `rewrite` has changed is held for a moment, and so are those behind it.
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
"""By API key and version. Raises ProtocolError for what can be neither relayed nor handled."""
