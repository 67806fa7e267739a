"""The reports of a member process to the story: one JSON object per line on its standard output.

They come from the client library: nothing here is from the coordinator except through a Kafka client.
"""

import sys
from typing import Final

import msgspec


class Assigned(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The rebalance listener was called with these partitions of the topic."""

    partitions: tuple[int, ...]


class Revoked(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The rebalance listener revoked them. Not reported by a member that is closing itself."""

    partitions: tuple[int, ...]


class Committed(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """An offset commit was answered with NONE, so member id and generation are valid for the coordinator."""


class CommitFailed(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """An offset commit was refused, with Kafka's name of the error: the member has lost its place, or its
    generation.
    """

    error: str


class Retried(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """An error that is retried: by the client library itself, or a commit by the next one."""

    error: str


class Ended(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The client library cannot continue: a fatal error for this member, by Kafka's name."""

    error: str


Report = Assigned | Revoked | Committed | CommitFailed | Retried | Ended

COMMIT_EVERY_S: Final = 0.3
"""The interval of a member's commits; the next commit is sent when the previous one is answered."""

_decoder: Final[msgspec.json.Decoder[Report]] = msgspec.json.Decoder(Report)


def tell(report: Report) -> None:
    """Print a report, at once."""
    sys.stdout.write(msgspec.json.encode(report).decode() + "\n")
    sys.stdout.flush()


def decode_report(line: bytes) -> Report:
    """Raises msgspec.DecodeError."""
    return _decoder.decode(line)
