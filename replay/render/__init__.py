"""Results for eyes and for programs: one function, three formats.

as_json.py     JSON and JSON lines, straight from the result structs
printable.py   what clients sent, made safe to show on a terminal
tables.py      the tables of `groups`, `history`, `state`
incident_table.py   an incident
why_table.py   a rebalance in detail
"""

from rich.console import Console

from muster.replay.form import Format
from muster.replay.groups import Groups
from muster.replay.render.as_json import write_json, write_json_lines
from muster.replay.render.tables import print_groups, print_state, print_story
from muster.replay.render.why_table import print_why
from muster.replay.state import StateAt
from muster.replay.story import Story
from muster.replay.why import Why

Result = Groups | Story | Why | StateAt


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
    else:
        print_state(result, console)
