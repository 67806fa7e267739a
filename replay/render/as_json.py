"""Results as JSON, for programs. The fields are those of the result structs; their names never change.

Instants are ISO 8601 in UTC with milliseconds, durations are numbers of ms (`..._ms`), bytes are base64. `json` is one
indented document; `jsonl` has a line for each incident, event or group, without the enclosing object.
"""

from collections.abc import Mapping, Sequence
from typing import IO, Final

import msgspec

from muster.replay.results.diff import Diff
from muster.replay.results.digest import Digest
from muster.replay.results.groups import Groups
from muster.replay.results.state import StateAt
from muster.replay.verify.finding import Verified
from muster.replay.whatif.verdict import WhatIf

_INDENT: Final = "    "

Result = Groups | StateAt | Verified | WhatIf | Diff | Digest


def write_json(result: Result, out: IO[str]) -> None:
    out.write(msgspec.json.format(msgspec.json.encode(result), indent=2).decode() + "\n")


def write_json_lines(result: Result, out: IO[str]) -> None:
    for line in _lines(result):
        write_line(line, out)


def write_line(line: msgspec.Struct, out: IO[str]) -> None:
    out.write(msgspec.json.encode(line).decode() + "\n")


def _lines(result: Result) -> Sequence[msgspec.Struct]:
    if isinstance(result, Groups):
        return result.groups
    if isinstance(result, Verified):
        return result.findings
    return (*result.rebalances, *result.additional) if isinstance(result, WhatIf) else (result,)


class JsonLines:
    """Writes a line for each value as it arrives."""

    def __init__(self, out: IO[str]) -> None:
        self._out = out

    def feed(self, value: msgspec.Struct) -> None:
        write_line(value, self._out)

    def end(self) -> None:
        """Do nothing: nothing follows the last line."""


class JsonDocument:
    """Writes one document like `write_json`, but each value as it arrives.

    `head`: its other fields, which come first. `name`: the field that has the values.
    """

    def __init__(self, head: Mapping[str, object], name: str, out: IO[str]) -> None:
        self._out = out
        self._head = msgspec.json.format(msgspec.json.encode(head), indent=2).decode().removesuffix("\n}")
        self._name = name
        self._is_first = True

    def feed(self, value: msgspec.Struct) -> None:
        told = msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
        self._out.write(f'{self._head},\n  "{self._name}": [\n' if self._is_first else ",\n")
        self._is_first = False
        self._out.write(_INDENT + told.replace("\n", "\n" + _INDENT))

    def end(self) -> None:
        self._out.write(f'{self._head},\n  "{self._name}": []\n}}\n' if self._is_first else "\n  ]\n}\n")
