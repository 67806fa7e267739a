"""Checks that a response has an entry for each group, topic or resource of its request, and no others.

The sender of such a request looks for its own entries in the response. If a broker returned others, our code would
fail, or take them for the state of another group or partition than the broker meant.
"""

from collections.abc import Collection, Mapping
from typing import Any, Final, NamedTuple


class _Entries(NamedTuple):
    """The names of the request's array, of the response's array, and of the id in an entry.

    In some requests the array has only the ids.
    """

    asked_in: str
    answered_in: str
    id: str


_ENTRIES: Final[Mapping[int, _Entries]] = {
    3: _Entries("topics", "topics", "name"),
    10: _Entries("coordinator_keys", "coordinators", "key"),
    15: _Entries("groups", "groups", "group_id"),
    19: _Entries("topics", "topics", "name"),
    32: _Entries("resources", "results", "resource_name"),
    44: _Entries("resources", "responses", "resource_name"),
    69: _Entries("group_ids", "groups", "group_id"),
    77: _Entries("group_ids", "groups", "group_id"),
    89: _Entries("group_ids", "groups", "group_id"),
}
"""Keyed by API key. LeaveGroup is not here: its response has no entries apart from an error."""


class _Partitions(NamedTuple):
    """Field names: the array of topics, a topic's name, its array of partitions, and a partition's number."""

    topics: str
    topic: str
    partitions: str
    number: str


_FETCH: Final = 1
_PARTITIONS: Final[Mapping[int, tuple[_Partitions, _Partitions]]] = {
    0: (
        _Partitions("topic_data", "name", "partition_data", "index"),
        _Partitions("responses", "name", "partition_responses", "index"),
    ),
    _FETCH: (
        _Partitions("topics", "topic", "partitions", "partition"),
        _Partitions("responses", "topic", "partitions", "partition_index"),
    ),
    2: (_Partitions("topics", "name", "partitions", "partition_index"),) * 2,
}
"""Produce, Fetch and ListOffsets: their requests, and their responses."""
_ONCE_EACH: Final = frozenset({*_PARTITIONS, 19, 32})
"""The APIs whose callers expect exactly one entry for each that they asked for."""


class OtherEntries(ValueError):
    """A response has other entries than its request asked for; the text lists those missing and those not requested."""


def check_entries(request: Any, response: Any) -> None:  # noqa: ANN401 -- any of kio's requests, and its response
    """Raise OtherEntries if the response does not have the entries that the request asked for."""
    key = request.__api_key__
    if key in _PARTITIONS:
        in_request, in_response = _PARTITIONS[key]
        answered = _partitions(response, in_response)
        if answered or key != _FETCH:  # a Fetch response is empty if a quota throttles it
            _compare(_partitions(request, in_request), answered, "partitions", once_each=True)
        return
    entries = _ENTRIES.get(key)
    if entries is not None and hasattr(request, entries.asked_in):  # FindCoordinator has none before v4
        asked = [getattr(each, entries.id, each) for each in getattr(request, entries.asked_in)]
        answered = [getattr(each, entries.id) for each in getattr(response, entries.answered_in)]
        _compare(asked, answered, entries.asked_in.replace("_", " "), once_each=key in _ONCE_EACH)


def _partitions(message: Any, at: _Partitions) -> list[str]:  # noqa: ANN401 -- a request or a response
    """Name each partition, and each topic that has none."""
    named: list[str] = []
    for topic in getattr(message, at.topics):
        numbers = [str(getattr(each, at.number)) for each in getattr(topic, at.partitions)]
        named += [f"{getattr(topic, at.topic)}-{number}" for number in numbers or ["no partition"]]
    return named


def _compare(asked: Collection[str], answered: Collection[str], kind: str, *, once_each: bool) -> None:
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
    if once_each and len(answered) > len(asked):
        raise OtherEntries(f"names some of the {kind} that were asked about more than once")


def _such_as(ids: set[str]) -> str:
    """Quote one of the ids, truncated since it may be very long, and count the others."""
    more = len(ids) - 1
    return f"{min(ids)[:100]!r}" + (f" and {more} more" if more else "")
