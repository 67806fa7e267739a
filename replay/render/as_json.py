"""Results as JSON, for programs. The fields are those of the result structs, whose names are never changed.

Instants are ISO 8601 in UTC with milliseconds, durations numbers of ms (`..._ms`), bytes base64. `json` is one indented
document; `jsonl` a line for each rebalance, event or group, without the frame around them.
"""

from collections.abc import Sequence
from typing import IO

import msgspec

from muster.replay.groups import Groups
from muster.replay.state import StateAt, States
from muster.replay.story import Story
from muster.replay.why import Why


def write_json(result: Groups | Story | Why | StateAt | States, out: IO[str]) -> None:
    out.write(msgspec.json.format(msgspec.json.encode(result), indent=2).decode() + "\n")


def write_json_lines(result: Groups | Story | Why | StateAt | States, out: IO[str]) -> None:
    for line in _lines(result):
        out.write(msgspec.json.encode(line).decode() + "\n")


def _lines(result: Groups | Story | Why | StateAt | States) -> Sequence[msgspec.Struct]:
    if isinstance(result, Groups | States):
        return result.groups
    if isinstance(result, Story):
        return result.lines
    return result.answers if isinstance(result, Why) else (result,)
