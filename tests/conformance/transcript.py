"""Transcripts: the requests and responses on one server, in a form that can be compared line by line.

Generated ids become names: a member id the name of the member that got it, with the part before the UUID kept
(`client-(a)`); the group id the script's own word for it; a topic id the topic's name. Message text becomes `(text)`:
its presence is compared, its words are not. Unordered lists are sorted.
"""

import re
from collections.abc import Callable, Mapping
from difflib import unified_diff
from typing import Any, Final

from kio.schema.errors import ErrorCode

_UUID: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$")
_LISTS_IN_ANY_ORDER: Final = frozenset({"members", "groups", "results", "topics", "partitions", "coordinators"})
_TEXTS: Final = frozenset({"error_message"})


class Transcript:
    """Lines of one run. Ids may become known later: names are inserted when `settle` is called."""

    def __init__(self, *, words: Mapping[str, str]) -> None:
        self._words = dict(words)  # groups, topics and the port
        self._names: dict[str, str] = {}
        self._unsettled: list[Callable[[], list[str]]] = []
        self._lines: list[str] = []

    def know(self, text: str, word: str) -> None:
        """Show this generated text as this word."""
        self._words[text] = word

    def learn(self, member_id: str, name: str) -> None:
        """Show this id by this name, also in lines since the last `settle`; the first name stays."""
        if member_id:
            self._names.setdefault(member_id, name)

    def rename(self, names: Mapping[str, str]) -> None:
        """Show these members by other names from here on."""
        self.settle()
        self._names = {member_id: names.get(name, name) for member_id, name in self._names.items()}

    def note(self, text: str) -> None:
        """Add a line that is no request."""
        self._unsettled.append(lambda: [text])

    def exchanged(self, who: str, what: str, requested: Mapping[str, Any], answered: Any) -> None:
        """A request and its result, in the order in which the responses were awaited."""
        self._unsettled.append(
            lambda: [f"{who}: {what}{self._arguments(requested)}", *_lines(self._named(answered, ordered=what))]
        )

    def settle(self) -> None:
        """Write down what has happened, with the current names."""
        for lines in self._unsettled:
            self._lines += lines()
        self._unsettled.clear()

    @property
    def lines(self) -> list[str]:
        self.settle()
        return self._lines

    def _arguments(self, requested: Mapping[str, Any]) -> str:
        return "".join(f" {key}={self._named(value)!r}" for key, value in requested.items())

    def _named(self, value: Any, key: str = "", *, ordered: str = "") -> Any:
        if isinstance(value, Mapping):
            return {each: self._named(of, each, ordered=ordered) for each, of in value.items()}
        if isinstance(value, list):
            named = [self._named(each, key, ordered=ordered) for each in value]
            # The results of a batch of leaving members are in the order of the request (L2).
            return sorted(named, key=repr) if key in _LISTS_IN_ANY_ORDER and "LeaveGroup" not in ordered else named
        if key == "error_code":
            return f"{value} {ErrorCode(value).name}"
        if key in _TEXTS:
            return "(text)" if value else value
        if key == "client_host":
            return "/(host)" if value.startswith("/") and len(value) > 1 else value
        if key == "port":
            return self._words.get(str(value), value)
        return self._word(value) if isinstance(value, str) else value

    def _word(self, text: str) -> str:
        if text in self._words:
            return self._words[text]
        uuid = _UUID.search(text)
        if uuid is None or not text[: uuid.start()].endswith("-"):
            return text
        return f"{text[: uuid.start()]}({self._names.get(text, 'a member not met')})"


def _lines(answered: Any) -> list[str]:
    if not isinstance(answered, dict):
        return [f"    {answered}"]
    lines = []
    for key, value in answered.items():
        if isinstance(value, list) and value:
            lines.append(f"    {key}:")
            lines += [f"      - {each}" for each in value]
        else:
            lines.append(f"    {key}: {value!r}")
    return lines


def difference(kafka: Transcript, muster: Transcript) -> str:
    """The difference of the two as text; "" if they are equal."""
    lines = unified_diff(kafka.lines, muster.lines, "Kafka", "Muster", n=12, lineterm="")
    return "\n".join(lines)
