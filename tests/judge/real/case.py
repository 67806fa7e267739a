"""A case from a seed: a scenario played with real clients on a Muster of its own, its history, and the ground truth.

It has the type of the judge's cases (`tests/judge/case.py`), so it is scored in the same way.
"""

import asyncio
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import msgspec

from muster.events.ids import GroupId, MemberId
from muster.events.kafka.security import NOT_SECURED
from muster.replay.logs.opening import open_for_reading
from tests.judge.case import WEIGHTS, Case
from tests.judge.real.diary import What, wall_ms
from tests.judge.real.given import Family
from tests.judge.real.scenario import RealScenario
from tests.judge.real.scenarios import SCENARIOS
from tests.judge.real.service import running_service
from tests.judge.real.spoiled import Spoiled, why_spoiled
from tests.judge.real.stage import RealStage
from tests.judge.scenario import ScenarioSort
from tests.judge.telling import Telling
from tests.replay.incidents.telling import tell
from tests.replay.whole import History, read_histories


class Drawn(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of a case that are drawn for a seed."""

    seed: int
    scenario: RealScenario
    family: Family


def draw(seed: int, scenario: str, family: Family) -> Drawn:
    """Always the same for a seed."""
    return Drawn(seed=seed, scenario=SCENARIOS[scenario], family=family)


def deal(seeds: range, scenario: str | None = None, family: Family | None = None) -> list[Drawn]:
    """Draw a case for each seed. The families take turns, and no scenario is repeated before all have been drawn."""
    random = Random(f"real {seeds.start}")
    pack: list[RealScenario] = []
    dealt: list[Drawn] = []
    for seed in seeds:
        of = family or tuple(Family)[seed % len(Family)]
        if not any(of in each.wanted.families for each in pack):
            again = [each for each in SCENARIOS.values() if scenario in (None, each.name)]
            pack += random.sample(again, len(again))
        drawn = next(each for each in pack if of in each.wanted.families)
        pack.remove(drawn)
        dealt.append(Drawn(seed=seed, scenario=drawn, family=of))
    return dealt


def play(drawn: Drawn, keep: Path | None = None, *, broker: str | None = None) -> Case:
    """Play it; `keep`: a folder for the log (of a standalone Muster) and the diaries. Raises `Spoiled`. `broker`: the
    address of the broker behind Muster; None: it is standalone.
    """
    with TemporaryDirectory(prefix="muster-judged-") as scratch:
        folder = keep or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        with running_service(folder, broker) as service:
            random = Random(f"{drawn.scenario.name} {drawn.seed}")
            with RealStage(random, drawn.scenario.wanted, drawn.family, service=service, folder=folder) as stage:
                _played(stage, drawn.scenario)
                until_ms = wall_ms()
                service.muster.stop()  # before the processes, so that their ends are not in the log
                return _case(drawn, stage, history_of(service.muster.log, service.group_id), until_ms)


def _played(stage: RealStage, scenario: RealScenario) -> None:
    try:
        stage.open()
        scenario.play(stage)
    except TimeoutError as error:
        raise Spoiled(why_spoiled(stage) or f"no rest: {error}") from error
    reason = why_spoiled(stage)
    if reason is not None:
        raise Spoiled(reason)


def _case(drawn: Drawn, stage: RealStage, history: History, until_ms: int) -> Case:
    return Case(
        seed=drawn.seed,
        scenario=drawn.scenario.name,
        sort=drawn.scenario.sort if drawn.scenario.sort in WEIGHTS else ScenarioSort.PLAIN,
        setting=stage.setting,
        history=history,
        until_ms=until_ms,
        truths=tuple(story.truth(stage.stories) for story in stage.stories),
        names=_names(stage),
        notes=tuple(stage.notes),
    )


def _names(stage: RealStage) -> dict[MemberId, str]:
    """Return the process behind each member id, from the diaries, and from instance ids and unique client ids."""
    known = {process.name for process in stage.all}
    names = {
        MemberId(member_id): name
        for look in stage.onlooker.looks
        for member_id, ids in look.members.items()
        for name in ids
        if name is not None and name in known
    }
    for process in stage.all:
        for entry in process.noted(What.ASSIGNED):
            names[MemberId(entry.member_id)] = process.name
    return names


def reports_of(case: Case) -> list[Telling]:
    """Return the reported incidents of the case. Incarnations are counted from 1, since Muster's numbers are its
    own.
    """
    tellings = tell(case.history, case.until_ms)
    lives = {life for telling in tellings for life, _ in telling.rebalances}
    numbers = {life: number for number, life in enumerate(sorted(lives), start=1)}
    return [
        msgspec.structs.replace(each, rebalances=frozenset((numbers[life], to) for life, to in each.rebalances))
        for each in tellings
    ]


def history_of(log: str, group_id: GroupId) -> History:
    """The group's history in a log."""

    async def read() -> History:
        opened = open_for_reading(log, security=NOT_SECURED)
        await opened.open()
        try:
            return (await read_histories(opened, group=group_id))[group_id]
        finally:
            await opened.close()

    return asyncio.run(read())
