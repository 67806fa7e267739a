"""Why a partition changed hands, as far as its next owner knew when it was ready.

`CoordinatorReady` records this about the former owner. Knows nothing of how the cause is found out.
"""

from enum import StrEnum, unique

import msgspec


@unique
class OwnershipEndCause(StrEnum):
    """Why the former owner lost the partition. The values stay in logs forever: never change one."""

    STOPPED = "stopped"
    """It stopped cleanly: CoordinatorStopped was its last event."""
    TAKEN_BACK = "taken-back"
    """The new owner is the same process, which had lost the log for a while."""
    GONE = "gone"
    """It is no longer a member of the ownership group: its connections broke, and its address refused new ones."""
    REPLACED = "replaced"
    """Another process has its node id, and its place in the ownership group."""
    NO_MEMBER = "no-member"
    """It is not a member of the ownership group; no process reported having seen its end."""
    STILL_A_MEMBER = "still-a-member"
    """It is still a member of the ownership group, and did not stop cleanly."""
    UNKNOWN = "unknown"
    """Read from a log that a newer version wrote. Never written."""


class OwnershipEnd(msgspec.Struct, frozen=True, kw_only=True):
    """The end of an ownership. `removed_by`: the process that removed the owner from the ownership group.

    `link_lost_ms`, `refused_ms`: when a process's connection to the owner's address broke, and when that address
    refused the next one, by that process's wall clock; it is `removed_by`, if that is known. None: unknown.
    """

    cause: OwnershipEndCause
    removed_by: str | None = None
    link_lost_ms: int | None = None
    refused_ms: int | None = None
