"""Failed scripts are repeated, if they are few; a real difference stays one."""

from collections.abc import Mapping, Sequence

import pytest

from tests.conformance import playing
from tests.conformance.eras import NEWEST
from tests.conformance.playing import AGAIN_MAX, AGAIN_TIMES, Played, Plays, differences, play_all
from tests.conformance.script import Script
from tests.conformance.servers import Pair, Setup
from tests.conformance.stage import Stage
from tests.conformance.transcript import Transcript


async def _nothing(_: Stage) -> None:
    pass


def script(name: str) -> Script:
    return Script(name=name, play=_nothing, eras=NEWEST, rules="", setup="usual", long=False)


class Stubborn:
    """Plays in which scripts fail this often; `asked` has the requested ones."""

    def __init__(self, times: Mapping[str, int]) -> None:
        self.left = dict(times)
        self.asked: list[list[str]] = []

    async def play(self, scripts: Sequence[Script], _: Mapping[Setup, Pair], *, at_a_time: int) -> Plays:
        assert at_a_time > 0
        self.asked.append([each.name for each in scripts])
        return {
            (each.name, era): [self._played(each.name), Played(Transcript(words={}), "")]
            for each in scripts
            for era in each.eras
        }

    def _played(self, name: str) -> Played:
        self.left[name] -= 1
        return Played(Transcript(words={}), "it went wrong" if self.left[name] >= 0 else "")


async def test_a_script_that_fails_once_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is reported all the same."""
    stubborn = Stubborn({"good": 0, "late": 1})
    monkeypatch.setattr(playing, "_play", stubborn.play)
    with pytest.warns(UserWarning, match="played once more: late$"):
        plays = await play_all([script("good"), script("late")], {})
    assert stubborn.asked == [["good", "late"], ["late"]]
    assert [differences(script(name), plays) for name in ("good", "late")] == [[], []]


async def test_a_script_that_always_fails_does_not_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    stubborn = Stubborn({"bad": 1 + AGAIN_TIMES})
    monkeypatch.setattr(playing, "_play", stubborn.play)
    with pytest.warns(UserWarning, match="bad"):
        plays = await play_all([script("bad")], {})
    assert differences(script("bad"), plays) == ["it went wrong"]
    assert stubborn.asked == [["bad"]] * (1 + AGAIN_TIMES)


async def test_a_script_that_passes_at_the_last_attempt_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    stubborn = Stubborn({"late": AGAIN_TIMES})
    monkeypatch.setattr(playing, "_play", stubborn.play)
    with pytest.warns(UserWarning, match="late"):
        plays = await play_all([script("late")], {})
    assert differences(script("late"), plays) == []


async def test_many_that_go_wrong_are_not_played_again(monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"bad-{number}" for number in range(AGAIN_MAX + 1)]
    stubborn = Stubborn(dict.fromkeys(names, 1))
    monkeypatch.setattr(playing, "_play", stubborn.play)
    plays = await play_all([script(name) for name in names], {})
    assert len(stubborn.asked) == 1
    assert all(differences(script(name), plays) for name in names)
