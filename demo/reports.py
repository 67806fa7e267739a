"""The reports of a member process to the story: one JSON object a line on its standard output.

These are the client library's own words: nothing here comes from the coordinator but through a Kafka client.
"""

import sys
from typing import Final

import msgspec


class Assigned(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The rebalance listener was called with these partitions of the topic."""

    partitions: tuple[int, ...]


class Revoked(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The rebalance listener took them back. Not told of a member that is closing itself."""

    partitions: tuple[int, ...]


class Committed(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """An offset commit was answered with NONE, so member id and generation are the coordinator's."""


class CommitFailed(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """An offset commit was refused, by Kafka's name of the error: the member has lost its place, or its generation."""

    error: str


class Retried(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Something failed that is tried again: by the client library itself, or a commit by the next one."""

    error: str


class Ended(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The client library cannot go on: an error that is fatal to this member, by Kafka's name."""

    error: str


Report = Assigned | Revoked | Committed | CommitFailed | Retried | Ended

COMMIT_EVERY_S: Final = 0.3
"""A member commits that often; the next commit is sent when the one before is answered."""

_decoder: Final[msgspec.json.Decoder[Report]] = msgspec.json.Decoder(Report)


def tell(report: Report) -> None:
    """Print a report, at once."""
    sys.stdout.write(msgspec.json.encode(report).decode() + "\n")
    sys.stdout.flush()


def decode_report(line: bytes) -> Report:
    """Raises msgspec.DecodeError."""
    return _decoder.decode(line)
