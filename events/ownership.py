"""Why a partition changed hands, as far as its next owner knew when it was ready.

What belongs here: what `CoordinatorReady` records of the former owner's end. What it must not know: how that is found.
"""

from enum import StrEnum, unique

import msgspec


@unique
class OwnershipEndCause(StrEnum):
    """Why the former owner owned the partition no more. The values stand in logs for ever: never change one."""

    STOPPED = "stopped"
    """It let the partition go in good order: its CoordinatorStopped came last."""
    TAKEN_BACK = "taken-back"
    """It is the new owner itself, which had lost the log for a while."""
    GONE = "gone"
    """It is no member of the ownership group: its connections had broken, and its address refused new ones."""
    REPLACED = "replaced"
    """Another process has its node id, and its place in the ownership group."""
    NO_MEMBER = "no-member"
    """It is no member of the ownership group; nobody told of having seen its end."""
    STILL_A_MEMBER = "still-a-member"
    """It is a member of the ownership group, and has not let the partition go in good order."""
    UNKNOWN = "unknown"
    """Read from a log that a newer version wrote. Never written."""


class OwnershipEnd(msgspec.Struct, frozen=True, kw_only=True):
    """The end of an ownership. `removed_by`: the process that removed the owner from the ownership group.

    `link_lost_ms`, `refused_ms`: when a process's connection to the owner's address broke, and when that address
    refused the next one, by that process's wall clock; it is `removed_by`, where that is known. None: not known.
    """

    cause: OwnershipEndCause
    removed_by: str | None = None
    link_lost_ms: int | None = None
    refused_ms: int | None = None
