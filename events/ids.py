"""Types for ids. All are strings on the wire; the types keep them apart."""

from typing import Final, NewType

GroupId = NewType("GroupId", str)
MemberId = NewType("MemberId", str)
GroupInstanceId = NewType("GroupInstanceId", str)

UNKNOWN_MEMBER_ID = MemberId("")
"""Sent by a client that has no member id yet (UMI in the catalogue of rules)."""

REMEMBERED_ID_LENGTH_MAX: Final = 512
"""The longest id, in characters, that a cache keeps. Caches are bounded by entries, and clients choose the ids."""


def is_remembered(*ids: str) -> bool:
    """Return whether a cache may keep these ids; for longer ones the result is computed or requested each time."""
    return all(len(each) <= REMEMBERED_ID_LENGTH_MAX for each in ids)
