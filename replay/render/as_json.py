"""Results as JSON, for programs. The fields are those of the result structs, whose names are never changed.

Instants are ISO 8601 in UTC with milliseconds, durations numbers of ms (`..._ms`), bytes base64. `json` is one indented
document; `jsonl` a line for each rebalance, event or group, without the frame around them.
"""

from collections.abc import Sequence
from typing import IO

import msgspec

from muster.replay.diff import Diff
from muster.replay.groups import Groups
from muster.replay.state import StateAt, States
from muster.replay.story import Story
from muster.replay.verify.finding import Verified
from muster.replay.whatif.verdict import WhatIf
from muster.replay.why import Why

Result = Groups | Story | Why | StateAt | States | Verified | WhatIf | Diff


def write_json(result: Result, out: IO[str]) -> None:
    out.write(msgspec.json.format(msgspec.json.encode(result), indent=2).decode() + "\n")


def write_json_lines(result: Result, out: IO[str]) -> None:
    for line in _lines(result):
        write_line(line, out)


def write_line(line: msgspec.Struct, out: IO[str]) -> None:
    out.write(msgspec.json.encode(line).decode() + "\n")


def _lines(result: Result) -> Sequence[msgspec.Struct]:
    if isinstance(result, Groups | States):
        return result.groups
    if isinstance(result, Story):
        return result.lines
    if isinstance(result, Verified):
        return result.findings
    if isinstance(result, WhatIf):
        return (*result.rebalances, *result.additional)
    return result.answers if isinstance(result, Why) else (result,)
