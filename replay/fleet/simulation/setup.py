"""How a process is configured, and how slow it is."""

from typing import Any, Self

import msgspec


class Setup(msgspec.Struct, frozen=True, kw_only=True):
    """How a process is configured and how slow it is; times in ms. `name` is the judge's, the same after a restart."""

    name: str
    client_id: str
    host: str
    instance: str | None
    library: str
    version: int
    session_ms: int
    rebalance_ms: int
    assignors: tuple[str, ...]
    topics: tuple[str, ...] = ("orders",)
    heartbeat_ms: int = 3_000
    poll_ms: int = 400
    """The longest that it takes to its next poll, at which it rejoins."""
    assign_ms: int = 30

    @property
    def tells_reasons(self) -> bool:
        return self.library == "java" and self.version >= 8

    def but(self, **fields: Any) -> Self:
        """The same but for these fields."""
        return msgspec.structs.replace(self, **fields)
