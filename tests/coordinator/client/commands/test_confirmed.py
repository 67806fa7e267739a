"""Confirmation of commands that cannot be undone."""

import io

import pytest
import typer

from muster.coordinator.client.commands.answer import confirmed


class Stream(io.StringIO):
    def __init__(self, *, is_terminal: bool) -> None:
        super().__init__()
        self._is_terminal = is_terminal

    def isatty(self) -> bool:
        return self._is_terminal


@pytest.mark.parametrize(
    ("stdin", "stdout", "yes", "is_done"),
    [
        (True, True, False, True),
        (False, True, False, False),
        (True, False, False, False),
        (False, False, False, False),
        (False, False, True, True),
    ],
)
def test_done_is_printed_only_after_a_process_confirmed_it(
    monkeypatch: pytest.MonkeyPatch, *, stdin: bool, stdout: bool, yes: bool, is_done: bool
) -> None:
    """Stdin and stdout must both be terminals, or `--yes` given: with redirected output the question is not seen."""
    monkeypatch.setattr("sys.stdin", Stream(is_terminal=stdin))
    monkeypatch.setattr("sys.stdout", Stream(is_terminal=stdout))
    monkeypatch.setattr(typer, "confirm", lambda _: True)
    assert confirmed("Really?", yes=yes) is is_done
