"""Families of kinds, for an overview; each has the same colour on all pages."""

from collections.abc import Mapping
from enum import StrEnum, unique
from typing import Final


@unique
class Family(StrEnum):
    """The value is the family's name in a page's style sheet; `words` is its label on a page."""

    FAILURE = "failure"
    SLOW = "slow"
    COORDINATOR = "coordinator"
    REPLACED = "replaced"
    SIZE = "size"
    ADMIN = "admin"
    CONTENT = "content"
    UNKNOWN = "unknown"

    @property
    def words(self) -> str:
        return _WORDS[self]


_WORDS: Final[Mapping[Family, str]] = {
    Family.FAILURE: "members lost",
    Family.SLOW: "members slow",
    Family.COORDINATOR: "coordinator",
    Family.REPLACED: "members replaced",
    Family.SIZE: "group grew or shrank",
    Family.ADMIN: "administrators",
    Family.CONTENT: "topics and assignors",
    Family.UNKNOWN: "unknown",
}

KINDS_OF: Final[Mapping[Family, tuple[str, ...]]] = {
    Family.FAILURE: ("crash", "crash-loop", "network-cut", "duel"),
    Family.SLOW: ("slow-member", "slow-leader", "poll-timeout", "unused-id"),
    Family.COORDINATOR: ("coordinator-outage", "coordinator-change"),
    Family.REPLACED: ("deployment", "blue-green", "restart"),
    Family.SIZE: ("start", "scale-up", "scale-down", "stopped", "shutdown", "capacity", "group-expired"),
    Family.ADMIN: ("planned", "removed-by-admin", "enforced", "group-deleted", "refused"),
    Family.CONTENT: (
        "assignor-change",
        "subscription-change",
        "unsubscribe",
        "unassigned-topic",
        "partitions-changed",
        "metadata-changed",
        "cooperative-round",
    ),
}

_FAMILY_OF: Final = {kind: family for family, kinds in KINDS_OF.items() for kind in kinds}


def family_of(kind: str) -> Family:
    """Return the family of a kind; UNKNOWN if it has none, as in tables from a newer version."""
    return _FAMILY_OF.get(kind, Family.UNKNOWN)
