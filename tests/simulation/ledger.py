"""The successful responses that clients received, in order: the half of the evidence that no log has. Judges
nothing.
"""

from collections import Counter

import msgspec


class ClientReply(msgspec.Struct, frozen=True, kw_only=True):
    """A successful response. Times are the world's: when the client sent the request, when the response left the
    process, when it was received.

    `process`: the one that answered; `passed_s`: when the response left the process that the client was connected to.
    `is_delegated`: that process answered by itself, on behalf of the owner.
    """

    process: str
    group_id: str
    member_id: str
    instance: str | None
    generation_id: int
    asked_s: float
    left_s: float
    passed_s: float
    is_delegated: bool
    heard_s: float


class JoinReply(ClientReply, frozen=True, kw_only=True):
    leader: str


class SyncReply(ClientReply, frozen=True, kw_only=True):
    assignment: bytes


class CommitReply(ClientReply, frozen=True, kw_only=True):
    partition: int
    offset: int


class FetchReply(ClientReply, frozen=True, kw_only=True):
    partition: int
    offset: int


class Ledger:
    """See the module. `counts`: what happened how often; requests by API, and errors by code."""

    def __init__(self) -> None:
        self.joins: list[JoinReply] = []
        self.syncs: list[SyncReply] = []
        self.heartbeats: list[ClientReply] = []
        self.commits: list[CommitReply] = []
        self.fetches: list[FetchReply] = []
        self.leaves: list[ClientReply] = []
        self.counts: Counter[str] = Counter()
        self.lost_joins: Counter[str] = Counter()
        """How many joins of new members had no answer, by group: each may have made a member."""
        self.member_ids: set[str] = set()
        """The member ids that clients have received."""
        self.wrongs: list[str] = []
        """Responses that no client may ever get, whatever the log has."""

    @property
    def requests(self) -> int:
        return sum(count for name, count in self.counts.items() if name.startswith("asked "))
