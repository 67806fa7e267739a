"""The responses that clients received, in order, and errors that they noticed: the evidence that no log has.

Responses as clients saw them, also as lines of a file; judges nothing. Instants are wall clock ms of this machine, on
which everything runs: when the client sent the request (the attempt that was answered), and when it got the response.
"""

from pathlib import Path
from typing import Self

import msgspec


class ClientReply(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """A success. `via`: the address that answered."""

    via: str
    group_id: str
    member_id: str
    instance: str | None
    generation_id: int
    asked_ms: int
    heard_ms: int


class JoinReply(ClientReply, frozen=True, kw_only=True, tag=True):
    leader: str


class SyncReply(ClientReply, frozen=True, kw_only=True, tag=True):
    assignment: bytes


class HeartbeatReply(ClientReply, frozen=True, kw_only=True, tag=True):
    pass


class CommitReply(ClientReply, frozen=True, kw_only=True, tag=True):
    partition: int
    offset: int


class LibraryCommit(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """A commit that a client library reported to its application as done."""

    group_id: str
    partition: int
    offset: int
    heard_ms: int


class Noticed(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """An error that a member has to act on, or (`is_hidden`) that a client library handles by itself."""

    kind: str
    group_id: str
    member: str
    error: str
    is_hidden: bool
    heard_ms: int


class Waited(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """A request that was answered after so long, with all its attempts, where it was long."""

    kind: str
    group_id: str
    member: str
    waited_ms: int
    heard_ms: int


Entry = JoinReply | SyncReply | HeartbeatReply | CommitReply | LibraryCommit | Noticed | Waited


class Ledger:
    """See the module. `path`: where the lines go."""

    def __init__(self, path: Path) -> None:
        self.entries: list[Entry] = []
        self._file = path.open("wb")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def note(self, entry: Entry) -> None:
        self.entries.append(entry)
        self._file.write(msgspec.json.encode(entry) + b"\n")

    def note_trouble(self, entry: Entry) -> None:
        """Note an entry of another service's ledger, if it is an error or a long wait."""
        if isinstance(entry, Noticed | Waited):
            self.note(entry)
