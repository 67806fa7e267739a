"""Renders results for people and for programs: tables, JSON, JSON lines, Markdown.

as_json.py     JSON and JSON lines, directly from the result structs
incident_streams.py   the incidents of `why`, printed as they arrive
incident_table.py   an incident
markdown.py    Markdown, for a chat or a ticket
streams.py     the lines of `history`, and the groups of `state`, printed as they arrive
tables.py      the tables of `groups`, `history`, `state`
time_words.py  times and windows as text
why_table.py   a rebalance in detail
verify_table.py   the findings of `verify`
whatif_table.py   the rebalances of a group with other settings
diff_table.py   the differences between two times
digest_table.py   the most important incidents of all groups
"""

from rich.console import Console

from muster.replay.form import Format, View
from muster.replay.render.as_json import Result, write_json, write_json_lines
from muster.replay.render.diff_table import diff_in_markdown, print_diff
from muster.replay.render.digest_table import digest_in_markdown, print_digest
from muster.replay.render.incident_streams import IncidentStream, incident_stream
from muster.replay.render.incident_table import Detail
from muster.replay.render.markdown import groups_in_markdown, state_in_markdown
from muster.replay.render.streams import StateStream, StoryStream, state_stream, story_stream
from muster.replay.render.tables import print_groups, print_state
from muster.replay.render.verify_table import print_verified, verified_in_markdown
from muster.replay.render.whatif_table import print_whatif, whatif_in_markdown
from muster.replay.results.diff import Diff
from muster.replay.results.digest import Digest
from muster.replay.results.groups import Groups
from muster.replay.results.state import StateAt
from muster.replay.text.zones import told_in
from muster.replay.verify.finding import Verified
from muster.replay.whatif.verdict import WhatIf

__all__ = [
    "Detail",
    "IncidentStream",
    "Result",
    "StateStream",
    "StoryStream",
    "incident_stream",
    "render",
    "state_stream",
    "story_stream",
]


def render(result: Result, view: View, console: Console) -> None:
    """Print the result. `console` is stdout; it knows whether it is a terminal, its width, and NO_COLOR.

    Times are in the zone of the view, except in JSON.
    """
    if view.form is Format.JSON:
        write_json(result, console.file)
    elif view.form is Format.JSONL:
        write_json_lines(result, console.file)
    else:
        _print(told_in(result, view.zone), view.form, console)


def _print(result: Result, form: Format, console: Console) -> None:
    if form is Format.MD:
        console.file.write(_in_markdown(result))
    elif isinstance(result, Groups):
        print_groups(result, console)
    elif isinstance(result, StateAt):
        print_state(result, console)
    elif isinstance(result, Verified):
        print_verified(result, console)
    elif isinstance(result, WhatIf):
        print_whatif(result, console)
    elif isinstance(result, Digest):
        print_digest(result, console)
    else:
        print_diff(result, console)


def _in_markdown(result: Result) -> str:
    if isinstance(result, Groups):
        return groups_in_markdown(result)
    if isinstance(result, Verified):
        return verified_in_markdown(result)
    if isinstance(result, WhatIf):
        return whatif_in_markdown(result)
    if isinstance(result, Digest):
        return digest_in_markdown(result)
    return diff_in_markdown(result) if isinstance(result, Diff) else state_in_markdown(result)
