"""The processes of one host, and the arguments of each.

Pure. Each is an ordinary `muster serve`, with the given arguments followed by a few that override them: the owner has
no clients; the frontends own nothing and listen on the same addresses, and the kernel distributes connections to them.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec

from muster.coordinator.settings.settings import Settings
from muster.coordinator.settings.sidecar import FRONTEND, OWNER

FRONTEND_NODE_IDS: Final = 1_000_000
"""The distance between the node ids of the owner and the frontends, and of one frontend and the next."""
LOOPBACK: Final = "127.0.0.1"


class Child(msgspec.Struct, frozen=True, kw_only=True):
    """A child process. `arguments`: those that `muster` was started with, followed by the child's own."""

    name: str
    arguments: tuple[str, ...]


def children(settings: Settings, given: Sequence[str], *, secret: Path) -> Iterator[Child]:
    """Yield the owner, then the frontends. `given`: the arguments of this process; `secret`: the peers' secret file."""
    for number in range(1 + settings.processes):
        is_owner = number == 0
        own = {
            "--processes": "1",
            "--role": OWNER if is_owner else FRONTEND,
            "--node-id": str(settings.node_id + number * FRONTEND_NODE_IDS),
            "--peer-secret-file": str(secret),
            "--metrics": f"{LOOPBACK}:0",
        }
        if not is_owner or settings.peer_listen is None:
            own["--peer-listen"] = f"{LOOPBACK}:0"
        flags = ["--share-partitions"] if is_owner else ["--share-partitions", "--reuse-port"]
        arguments = (*given, *flags, *(each for item in own.items() for each in item))
        yield Child(name=OWNER if is_owner else f"{FRONTEND}-{number}", arguments=arguments)
