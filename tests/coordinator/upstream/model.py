"""The upstream coordinator as one shadow sees it: one group, in memory, with Kafka's responses.

It models how Kafka 4 treats one static member (measured; KIP-345). It knows nothing of Muster.
"""

import msgspec
from kio.schema.errors import ErrorCode

from muster.coordinator.upstream.shadow import (
    Action,
    CommitIdentity,
    Join,
    Leave,
    ShadowHeartbeat,
    Sync,
    on_joined,
    on_left,
    on_synced,
)
from muster.coordinator.upstream.shadow import Shadow as State

INSTANCE_ID = "muster-log"


class Upstream(msgspec.Struct):
    """One group. `member_id` is the static member's, None when the group has no member."""

    generation_id: int = 0
    member_id: str | None = None
    is_synced: bool = False
    ids: int = 0

    def accepts_commit(self, identity: CommitIdentity) -> bool:
        """Return whether a commit with this identity is accepted: by the member, in its generation, when it is
        stable.
        """
        return self.is_synced and identity == self._identity

    @property
    def _identity(self) -> CommitIdentity:
        return CommitIdentity(
            member_id=self.member_id or "", generation_id=self.generation_id, group_instance_id=INSTANCE_ID
        )

    def remove(self) -> None:
        """Remove the member: it left, an administrator removed it, or its session expired."""
        if self.member_id is not None:
            self.member_id, self.is_synced = None, False
            self.generation_id += 1

    def delete(self) -> None:
        """Delete the group; one of the same name starts over."""
        self.remove()
        self.generation_id = 0

    def take(self, step: Action) -> ErrorCode:
        """Apply a step, and return the response."""
        match step:
            case Join(member_id):
                return self._join(member_id)
            case Sync(identity) | ShadowHeartbeat(identity):
                error = self._checked(identity.member_id)
                if error is ErrorCode.none and identity.generation_id != self.generation_id:
                    return ErrorCode.illegal_generation
                self.is_synced = self.is_synced or (error is ErrorCode.none and isinstance(step, Sync))
                return error
            case Leave(member_id):
                error = self._checked(member_id or self.member_id or "")
                if error is ErrorCode.none:
                    self.remove()
                return error

    def _join(self, member_id: str) -> ErrorCode:
        error = self._checked(member_id) if member_id else ErrorCode.none
        if error is not ErrorCode.none:
            return error
        is_replacement = not member_id and self.is_synced
        if not member_id:
            self.ids += 1
            self.member_id = f"muster-{self.ids}"
        if not is_replacement:  # a leader that rejoins, a first member, or a member during a rebalance
            self.generation_id += 1
            self.is_synced = False
        return ErrorCode.none

    def _checked(self, member_id: str) -> ErrorCode:
        if self.member_id is None:
            return ErrorCode.unknown_member_id
        return ErrorCode.none if member_id == self.member_id else ErrorCode.fenced_instance_id

    def answer(self, state: State, step: Action) -> State:
        """Apply a response without an error."""
        match step:
            case Join():
                assert self.member_id is not None
                return on_joined(state, self._identity)
            case Sync():
                return on_synced(state)
            case ShadowHeartbeat():
                return state
            case Leave():
                return on_left(state)
