"""The tool's output for a harness that was played, for tests."""

import io
from collections.abc import Iterable

from rich.console import Console

from muster.replay.form import Format
from muster.replay.rebalances.rebalance import Happening, HappeningKind, MemberRef, Rebalance
from muster.replay.render import Result, render
from muster.replay.state import StateAt, state_at
from muster.replay.why import Answer, why
from muster.replay.window import AtSeq
from tests.coordinator.group.harness import Harness
from tests.replay.played import history_of


def printed(result: Result, form: Format = Format.TABLE, width: int = 100) -> str:
    out = io.StringIO()
    render(result, form, Console(file=out, width=width, highlight=False))
    return out.getvalue()


def last(h: Harness) -> Answer:
    (answer,) = why(history_of(h)).answers
    return answer


def told(h: Harness) -> Rebalance:
    return last(h).rebalance


def happenings(h: Harness, kind: HappeningKind) -> list[Happening]:
    """Before the last rebalance, and since."""
    answer = last(h)
    return [each for each in (*answer.rebalance.avoided, *answer.since) if each.kind is kind]


def state_of(h: Harness) -> StateAt:
    state = state_at(history_of(h), AtSeq(h.events[-1].seq))
    assert state is not None
    return state


def names(members: Iterable[MemberRef]) -> list[str]:
    return [member.group_instance_id or member.member_id for member in members]
