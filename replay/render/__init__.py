"""Results for eyes and for programs: one function, three formats.

as_json.py     JSON and JSON lines, straight from the result structs
printable.py   what clients sent, made safe to show on a terminal
tables.py      the tables of `groups`, `history`, `state`
incident_table.py   an incident
why_table.py   a rebalance in detail
verify_table.py   what holds of a log, and what does not
whatif_table.py   the rebalances of a group under other settings
diff_table.py   what differs between two moments
"""

from typing import assert_never

from rich.console import Console

from muster.replay.diff import Diff
from muster.replay.form import Format
from muster.replay.groups import Groups
from muster.replay.render.as_json import Result, write_json, write_json_lines
from muster.replay.render.diff_table import print_diff
from muster.replay.render.tables import print_groups, print_state, print_story
from muster.replay.render.verify_table import print_verified
from muster.replay.render.whatif_table import print_whatif
from muster.replay.render.why_table import print_why
from muster.replay.state import StateAt
from muster.replay.story import Story
from muster.replay.verify.finding import Verified
from muster.replay.whatif.verdict import WhatIf
from muster.replay.why import Why

__all__ = ["Result", "render"]


def render(result: Result, form: Format, console: Console) -> None:
    """Print the result. `console` is stdout; it knows whether there is a terminal, how wide, and NO_COLOR."""
    if form is Format.JSON:
        write_json(result, console.file)
    elif form is Format.JSONL:
        write_json_lines(result, console.file)
    else:
        _print_table(result, console)


def _print_table(result: Result, console: Console) -> None:
    if isinstance(result, Groups):
        print_groups(result, console)
    elif isinstance(result, Story):
        print_story(result, console)
    elif isinstance(result, Why):
        print_why(result, console)
    elif isinstance(result, Verified):
        print_verified(result, console)
    elif isinstance(result, WhatIf):
        print_whatif(result, console)
    elif isinstance(result, Diff):
        print_diff(result, console)
    elif isinstance(result, StateAt):
        print_state(result, console)
    else:
        assert_never(result)
