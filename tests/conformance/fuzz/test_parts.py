"""The parts of the fuzzer that need no server: schedules, their shrinking, free leadership, turns."""

import asyncio
import time
from pathlib import Path
from random import Random

import msgspec
import pytest

from muster.coordinator.wire.registry import APIS
from tests.conformance.fuzz.actor import Actor, Request
from tests.conformance.fuzz.fuse import BURSTS_MS, COMPLETING, LATE_MS, PREPARING, STABLE, Fuse, Slipped
from tests.conformance.fuzz.generator import generate
from tests.conformance.fuzz.leadership import DEAD, Leadership, View
from tests.conformance.fuzz.odds import VERSIONS, pick
from tests.conformance.fuzz.schedule import (
    Cast,
    DeleteGroups,
    Gather,
    JoinGroup,
    Pass,
    Schedule,
    Step,
    from_text,
    read,
    to_text,
)
from tests.conformance.fuzz.shrink import shrunk
from tests.conformance.fuzz.turns import AT_A_TIME, Turns
from tests.conformance.wire import Fields

# ---- schedules -----------------------------------------------------------------------------------------


def test_a_seed_always_gives_the_same_schedule() -> None:
    """A seed that failed on one machine can be played on another."""
    assert generate(7, steps=60) == generate(7, steps=60)
    assert generate(7, steps=60) != generate(8, steps=60)
    assert len(generate(7, steps=60).steps) == 60


def test_a_schedule_goes_through_a_file(tmp_path: Path) -> None:
    """For every kind of step."""
    schedules = [generate(seed, steps=60) for seed in range(20)]
    kinds = {type(step) for schedule in schedules for step in schedule.steps}
    assert kinds == _leaves(Step)
    for schedule in schedules:
        path = tmp_path / "schedule.json"
        path.write_text(to_text(schedule), encoding="utf-8")
        assert read(path) == schedule


def test_a_schedule_with_an_unknown_word_is_refused() -> None:
    """A file written for another version of the steps is not misread."""
    text = to_text(generate(1, steps=3)).replace('"seed"', '"sead"')
    with pytest.raises(msgspec.ValidationError):
        from_text(text)


def test_all_versions_that_muster_offers_are_requested() -> None:
    """A new version of the ten APIs cannot be forgotten."""
    offered = {api.name: list(api.versions) for api in APIS.values()}
    request = {kind.__name__: list(versions) for kind, versions in VERSIONS.items()}
    assert request == {name: offered[name] for name in request}
    assert offered["OffsetDelete"] == [0]


def test_picks_are_as_likely_as_they_weigh() -> None:
    """The heavier one comes more often."""
    rng = Random(1)
    picked = [pick(rng, {"often": 9, "seldom": 1}) for _ in range(1_000)]
    assert 850 < picked.count("often") < 950


def _leaves(kind: type[Step]) -> set[type[Step]]:
    leaves: set[type[Step]] = set()
    for below in kind.__subclasses__():
        leaves |= _leaves(below) or {below}
    return leaves


# ---- shrinking -----------------------------------------------------------------------------------------


async def test_irrelevant_steps_are_left_out() -> None:
    """The two of sixty steps that make it fail remain, without irrelevant oddities."""
    culprits = (Gather(whos=(0, 1, 2)), DeleteGroups(version=1, others=True))
    schedule = generate(3, steps=60)
    steps = [step for step in schedule.steps if not isinstance(step, DeleteGroups)]
    schedule = msgspec.structs.replace(schedule, steps=(*steps[:20], culprits[0], *steps[20:40], culprits[1]))

    async def fails(tried: Schedule) -> bool:
        gathers = [n for n, step in enumerate(tried.steps) if isinstance(step, Gather) and 1 in step.whos]
        deletes = [n for n, step in enumerate(tried.steps) if isinstance(step, DeleteGroups) and step.others]
        return bool(gathers and deletes and gathers[0] < deletes[-1])

    short = await shrunk(schedule, fails)
    assert short.steps == (Gather(whos=(1,)), DeleteGroups(others=True))


async def test_steps_after_the_difference_are_removed_first() -> None:
    """One trial cuts off the rest."""
    tried: list[int] = []
    schedule = msgspec.structs.replace(generate(3, steps=60), steps=(Pass(),) * 30 + (DeleteGroups(),) + (Pass(),) * 29)

    async def fails(candidate: Schedule) -> bool:
        tried.append(len(candidate.steps))
        return DeleteGroups() in candidate.steps

    short = await shrunk(schedule, fails, last_step=30)
    assert short.steps == (DeleteGroups(),)
    assert tried[0] == 31
    assert max(tried[1:]) < 31


# ---- leadership ----------------------------------------------------------------------------------------


def _view(*members: str, state: str = STABLE) -> View:
    """A view of members by id; an id with a hyphen is a process of the static member before the hyphen."""
    return View(state=state, members={each: each.partition("-")[0] if "-" in each else None for each in members})


def _joined(*members: str, leader: str) -> list[Fields]:
    return [{"error_code": 0, "generation_id": 9, "member_id": each, "leader": leader} for each in members]


@pytest.mark.parametrize(
    ("views", "joined", "free"),
    [
        (["a", "a b"], ["a", "b"], False),
        (["a", "a b", "b"], ["b"], False),
        (["a", "a b c", "b c"], ["b", "c"], True),
        (["a", "a b c", "b c"], ["b"], False),
        (["a", "a b c", "b c", "c", "c d"], ["c", "d"], False),
        (["a-1", "a-1 b", "a-2 b"], ["a-2", "b"], False),
        (["a-1", "a-1 b c"], ["b", "c"], True),
        (["a-1", "a-1 b c", "b c", "a-3 b c"], ["a-3", "b", "c"], True),
    ],
)
def test_the_leader_is_free_when_the_last_one_is_gone(views: list[str], joined: list[str], free: bool) -> None:
    """The first member leads until it leaves or does not rejoin; then any of two or more that joined may lead."""
    leadership = Leadership()
    for view in views:
        leadership.looked(_view(*view.split()))
    assert leadership.is_free(_joined(*joined, leader=joined[0])) is free


def test_responses_of_a_known_generation_reveal_no_new_one() -> None:
    """A join that is answered at once does not end a join phase."""
    leadership = Leadership()
    answers = _joined("a", "b", leader="a")
    assert leadership.new_generation(answers) == answers
    assert leadership.new_generation(answers) == []
    leadership.looked(View(state=DEAD, members={}))
    assert leadership.new_generation(answers) == answers


def test_later_events_do_not_decide_the_leader() -> None:
    """Three members could lead a new generation; before its responses are read, two of them are gone again."""
    leadership = Leadership()
    leadership.looked(_view("b", "c", "d", state=PREPARING))
    joined = _joined("b", "c", "d", leader="c")
    for answer in joined:
        leadership.answered(answer)
    leadership.looked(_view("c", state=PREPARING))
    assert leadership.is_free(leadership.new_generation(joined))


# ---- time ----------------------------------------------------------------------------------------------


def _brief_join() -> Request:
    cast = Cast(static=False, era=4, topics=(), offers=1)
    actor = Actor(0, cast)
    return actor.join(JoinGroup(brief=True), actor, "group", protocol_type="consumer", liked=("range",), patient=True)


def test_a_brief_session_burns_until_its_member_is_gone() -> None:
    """In a patient group nothing else happens by itself."""
    fuse = Fuse(patient=True)
    fuse.looked(_view("a", "b", state=COMPLETING))
    assert fuse.longest_ms(_view("a", "b", state=COMPLETING)) == 0
    fuse.told(_brief_join(), {"error_code": 0, "member_id": "a"})
    assert fuse.longest_ms(_view("a", "b", state=COMPLETING)) > LATE_MS
    assert fuse.longest_ms(_view("b", state=PREPARING)) == 0


def test_an_impatient_driver_waits_actively_until_all_have_synced() -> None:
    """Rebalances end by themselves, and so does the wait for syncs."""
    fuse = Fuse(patient=False)
    view = _view("a", "b")
    assert fuse.running(view) == {"rebalance"}
    for member_id in view.members:
        request = Request(
            who=member_id,
            api="SyncGroup",
            version=5,
            body={"member_id": member_id},
            asked={},
            brief=False,
            life=0,
        )
        fuse.told(request, {"error_code": 0})
    assert fuse.running(view) == set()


def test_a_run_that_took_too_long_is_discarded() -> None:
    """A request close to a timer that may have expired proves nothing."""
    fuse = Fuse(patient=True)
    preparing = _view("a", state=PREPARING)
    fuse.looked(preparing)
    fuse.asked(preparing, since_s=time.monotonic())
    late = Fuse(patient=True)
    late.looked(preparing)
    with pytest.raises(Slipped):
        late.asked(preparing, since_s=time.monotonic() - BURSTS_MS["initial"] / 1_000)


# ---- turns ---------------------------------------------------------------------------------------------


async def test_urgent_clients_have_the_next_turn() -> None:
    """Then those that came first."""
    turns, served = Turns(), list[str]()
    for _ in range(AT_A_TIME):
        await turns.take()

    async def wait(name: str, *, urgent: bool) -> None:
        await turns.take(urgent=urgent)
        served.append(name)
        turns.give()

    waiting = [asyncio.create_task(wait(name, urgent=name == "late")) for name in ("one", "two", "late")]
    await asyncio.sleep(0)
    turns.give()
    await asyncio.gather(*waiting)
    assert served == ["late", "one", "two"]
