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


class OtherEntries(ValueError):
    """A response is about something else; the text says what is missing, and what was not asked about."""


def check_entries(request: Any, response: Any) -> None:  # noqa: ANN401 -- any of kio's requests, and its response
    """Raise OtherEntries for a response to this request that is about something else."""
    entries = _ENTRIES.get(request.__api_key__)
    if entries is None:
        return
    asked = {getattr(each, entries.id, each) for each in getattr(request, entries.asked_in)}
    answered = {getattr(each, entries.id) for each in getattr(response, entries.answered_in)}
    missing, strange = asked - answered, answered - asked
    if missing or strange:
        said = ", ".join(
            f"{_such_as(ids)} {one if len(ids) == 1 else many}"
            for ids, one, many in (
                (missing, "is missing", "are missing"),
                (strange, "was not asked about", "were not asked about"),
            )
            if ids
        )
        raise OtherEntries(f"is not about the {entries.asked_in.replace('_', ' ')} that were asked about: {said}")


def _such_as(ids: set[str]) -> str:
    """One of them, cut, as it may be as long as a string may be; and how many more there are."""
    more = len(ids) - 1
    return f"{min(ids)[:100]!r}" + (f" and {more} more" if more else "")
