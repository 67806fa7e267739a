"""The same frames through a sidecar, over sockets: those that it handles, and those that it relays to a broker.

The broker is a standalone coordinator in a thread of its own. It answers relayed frames, or closes the connection.
"""

import asyncio
from collections import Counter
from collections.abc import Callable

from muster.coordinator.sidecar.relay.client_side import ClientSide
from muster.coordinator.wire.api import Fault, Offered
from muster.coordinator.wire.registry import APIS
from tests.coordinator.longest_callback import longest_callback
from tests.coordinator.sidecar.relay.test_hostile_requests import TXN_OFFSET_COMMIT, sidecar
from tests.coordinator.sidecar.relaying import Relay
from tests.frames.generator import Frame, Frames
from tests.frames.verdict import BadOutcome, Verdict, no_errors_told

WITHIN_S = 30
QUIET_S = 0.05
"""How long to wait after an incomplete frame, to check that nothing is sent in response."""

GROUPS = 100
"""To be listed: more would be most of the work, and find nothing more."""

THROUGH = [
    *APIS.values(),
    TXN_OFFSET_COMMIT,
    Offered(key=17, name="SaslHandshake", versions=range(1, 2)),
    Offered(key=36, name="SaslAuthenticate", versions=range(3)),
]


async def play(frames: int, seed: int, report: Callable[[str], None]) -> Counter[str]:
    """Play this many; return the outcomes. Raises BadOutcome."""
    verdict, source = Verdict(), Frames(THROUGH, seed)
    async with sidecar() as relay:
        assert isinstance(relay.groups.listed, list)
        del relay.groups.listed[GROUPS:]
        with no_errors_told(), longest_callback() as longest:
            for number in range(frames):
                await _play_one(relay, source.next(), verdict)
                if not (number + 1) % 5_000:
                    report(f"{number + 1} frames through the sidecar: {dict(verdict.outcomes)}")
        verdict.nobody_waited(longest)
        await verdict.nothing_is_left(
            ClientSide,
            lambda: {"connections": len(relay.listening.connections), "waiting": relay.service.slices.waiting},
        )
    return verdict.outcomes


async def _play_one(relay: Relay, frame: Frame, verdict: Verdict) -> None:
    before = Counter(relay.metrics.protocol_errors)
    client = await relay.connect(1)
    client.send(frame.content)
    try:
        async with asyncio.timeout(WITHIN_S if frame.is_whole else QUIET_S):
            first = await client.reader.read(1)
    except ConnectionError:
        first = b""
    except TimeoutError:
        if frame.is_whole:
            raise BadOutcome(f"neither answered nor closed: {frame.told}") from None
        first = None
    fault: Fault | None = next(iter(Counter(relay.metrics.protocol_errors) - before), None)
    verdict.judge(frame, answered=bool(first), fault=fault, closed=first == b"")
    client.vanish()
