"""Checking that a response has an entry for each group, topic or resource of its request, and for nothing else.

The sender of such a request looks for its own entries in the response, so a broker that answers about others would
have an error of ours raised, or be believed about a group or a partition that it does not mean. Of kio's entries,
repeated ones are left alone; of aiokafka's, which are tuples that are taken apart as they were asked for, none may be.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final, NamedTuple


class _Entries(NamedTuple):
    """The array of the request, the one of the response, and the id in an entry; requests may have the ids alone."""

    asked_in: str
    answered_in: str
    id: str


_ENTRIES: Final[Mapping[int, _Entries]] = {
    3: _Entries("topics", "topics", "name"),
    10: _Entries("coordinator_keys", "coordinators", "key"),
    15: _Entries("groups", "groups", "group_id"),
    32: _Entries("resources", "results", "resource_name"),
    44: _Entries("resources", "responses", "resource_name"),
    69: _Entries("group_ids", "groups", "group_id"),
    77: _Entries("group_ids", "groups", "group_id"),
    89: _Entries("group_ids", "groups", "group_id"),
}
"""Keyed by API key. LeaveGroup is not here: its response has no entries beside an error."""

_FETCH: Final = 1
_WITH_PARTITIONS: Final = frozenset({0, _FETCH, 2})
"""Produce, Fetch and ListOffsets, as aiokafka has them."""
_CREATE_TOPICS: Final = 19
_DESCRIBE_CONFIGS: Final = 32


class OtherEntries(ValueError):
    """A response is about something else; the text says what is missing, and what was not asked about."""


def check_entries(request: Any, response: Any) -> None:  # noqa: ANN401 -- any of kio's requests, and its response
    """Raise OtherEntries for a response to this request that is about something else."""
    entries = _ENTRIES.get(request.__api_key__)
    if entries is None:
        return
    asked = {getattr(each, entries.id, each) for each in getattr(request, entries.asked_in)}
    answered = {getattr(each, entries.id) for each in getattr(response, entries.answered_in)}
    _compare(asked, answered, entries.asked_in.replace("_", " "))


def check_tuples(request: Any, response: Any) -> None:  # noqa: ANN401 -- any of aiokafka's requests, and its response
    """The same of aiokafka's, where an entry that is repeated is something else, too."""
    key = request.API_KEY
    if key in _WITH_PARTITIONS:
        if response.topics or key != _FETCH:  # which is answered with nothing at all when a quota throttles it
            _compare(_partitions(request.topics), _partitions(response.topics), "partitions")
    elif key == _CREATE_TOPICS:
        asked, answered = request.create_topic_requests, response.topic_errors
        _compare([name for name, *_ in asked], [name for name, *_ in answered], "topics")
    elif key == _DESCRIBE_CONFIGS:
        _compare([name for _, name, *_ in request.resources], [each[3] for each in response.resources], "resources")


def _partitions(topics: Iterable[tuple[str, Iterable[tuple[Any, ...]]]]) -> list[str]:
    """Name each partition, and each topic that has none."""
    return [
        f"{topic}-{partition}" for topic, partitions in topics for partition, *_ in partitions or [("no partition",)]
    ]


def _compare(asked: Collection[str], answered: Collection[str], kind: str) -> None:
    missing, strange = set(asked) - set(answered), set(answered) - set(asked)
    if missing or strange:
        said = ", ".join(
            f"{_such_as(ids)} {one if len(ids) == 1 else many}"
            for ids, one, many in (
                (missing, "is missing", "are missing"),
                (strange, "was not asked about", "were not asked about"),
            )
            if ids
        )
        raise OtherEntries(f"is not about the {kind} that were asked about: {said}")
    if len(answered) > len(asked):
        raise OtherEntries(f"names some of the {kind} that were asked about more than once")


def _such_as(ids: set[str]) -> str:
    """One of them, cut, as it may be as long as a string may be; and how many more there are."""
    more = len(ids) - 1
    return f"{min(ids)[:100]!r}" + (f" and {more} more" if more else "")
