"""Checking that a response has an entry for each group, key or resource of its request, and for nothing else.

Whoever sends such a request looks for its own entries in the response, so a broker that answers about others would
have an error of ours raised, or be believed about a group that it does not mean. Repeated entries are left alone.
"""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple


class _Entries(NamedTuple):
    """The array of the request, the one of the response, and the id in an entry; requests may have the ids alone."""

    asked_in: str
    answered_in: str
    id: str


_ENTRIES: Final[Mapping[int, _Entries]] = {
    10: _Entries("coordinator_keys", "coordinators", "key"),
    15: _Entries("groups", "groups", "group_id"),
    32: _Entries("resources", "results", "resource_name"),
    44: _Entries("resources", "responses", "resource_name"),
    69: _Entries("group_ids", "groups", "group_id"),
    77: _Entries("group_ids", "groups", "group_id"),
    89: _Entries("group_ids", "groups", "group_id"),
}
"""Keyed by API key. LeaveGroup is not here: its response has no entries beside an error."""


def check_entries(request: Any, response: Any) -> None:  # noqa: ANN401 -- any of kio's requests, and its response
    """Raise ValueError for a response to this request that is about something else."""
    entries = _ENTRIES.get(request.__api_key__)
    if entries is None:
        return
    asked = {getattr(each, entries.id, each) for each in getattr(request, entries.asked_in)}
    answered = {getattr(each, entries.id) for each in getattr(response, entries.answered_in)}
    if asked != answered:
        missing, strange = (_such_as(ids) for ids in (asked - answered, answered - asked))
        raise ValueError(f"of its {entries.answered_in} {missing} missing, and {strange} not asked about")


def _such_as(ids: set[str]) -> str:
    """`none is`, or the count and one of them, cut: it may be as long as a string may be."""
    return f"{len(ids)} ({min(ids)[:100]!r}) {'is' if len(ids) == 1 else 'are'}" if ids else "none is"
