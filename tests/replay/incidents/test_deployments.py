"""The sentences about replaced processes: deployments, incidents within them, and processes that moved.

The same history at the previous format level, which recorded less, gets a weaker grade, never a guess.
"""

from functools import partial

import pytest

from muster.replay.fleet.simulation.world import outages
from muster.replay.fleet.simulation.world.process import Process
from muster.replay.text.times import wall_ms_of
from tests.replay.incidents.fleet import BOTH, OLDER, QUIET_MS, Fleet, expect, of_kind, shown

S = 1_000


@BOTH
def test_a_rolling_deployment_of_ten_is_one_incident(level: int) -> None:
    """It has the twenty rebalances, and their time span."""
    fleet = Fleet(10)
    for number in range(1, 11):
        fleet.restart(number, 5 * S)
        fleet.run(20 * S)
    fleet.rest(20 * S)
    incident = fleet.only(level)
    headline = "10 processes of 10 stopped and started one after another, within 3 min 05 s: ... and 5 more"
    expect(incident, "deployment", "inferred", headline, *(f"app-{number}" for number in range(1, 11)))
    assert len(incident.rebalances) == 20
    assert incident.started_at == incident.rebalances[0].started_at
    assert incident.ended_at == incident.rebalances[-1].ended_at


@BOTH
def test_all_that_crash_and_restart_are_one_incident(level: int) -> None:
    """All five of five."""
    fleet = Fleet(5)
    for number in range(1, 6):
        fleet.restart(number, 2 * S + number * 300, kill=True)
    fleet.rest(20 * S)
    headline = (
        "5 processes of 5 disappeared and came back at once, within ...: 'app-1' (10.0.1.1), ... and 'app-5' (10.0.1.5)"
    )
    expect(fleet.only(level), "deployment", "inferred", headline, *(f"app-{number}" for number in range(1, 6)))


def test_the_name_of_a_process_is_its_own() -> None:
    """Names may have any spelling; counts of processes are in English nevertheless."""
    fleet = Fleet(3)
    for _ in range(2):  # they first join under these names, then they are replaced
        for number in (1, 2):
            fleet[number].close()
            fleet.run(200)
            fleet.start(number, fleet.setup(number).but(client_id=f"processs-{number}"))
        fleet.rest(20 * S)
        fleet.run(QUIET_MS)
    headline = "2 processes of 3 stopped and started ...: 'processs-1' (10.0.1.1) and 'processs-2' (10.0.1.2)"
    expect(fleet.told()[-1], "deployment", "inferred", headline, "processs-1", "processs-2")


@BOTH
def test_static_members_that_are_replaced_fast_were_not_cut_off(level: int) -> None:
    """Each falls silent three seconds after the previous one, and comes back when its session is over."""
    fleet = Fleet(8, static=8, session_ms=6 * S)
    for number in range(1, 9):
        fleet.restart(number, 9 * S)
        fleet.run(3 * S)
    fleet.rest(30 * S)
    headline = "8 processes of 8 disappeared and came back one after another, within ...: ... and 3 more"
    expect(fleet.only(level), "deployment", "recorded", headline, *(f"app-{number}" for number in range(1, 9)))


@pytest.mark.parametrize(
    ("first", "second", "gap_s", "kinds"),
    [
        (1, 2, 310, ["restart", "restart"]),
        (2, 1, 290, ["deployment"]),
    ],
)
def test_replacements_are_of_one_deployment_by_when_each_process_ended(
    first: int, second: int, gap_s: int, kinds: list[str]
) -> None:
    """A static member is removed only when its session ends, 45 s later."""
    fleet = Fleet(3, static=1, session_ms=45 * S)
    fleet.restart(first, 50 * S)
    fleet.run(gap_s * S)
    fleet.restart(second, 50 * S)
    fleet.rest(60 * S)
    assert [each.kind for each in fleet.told()] == kinds


def test_a_deployment_spans_from_its_first_rebalance_although_another_process_had_ended_before() -> None:
    """The static process ends first and is removed last; the third ends within five minutes of the second only."""
    fleet = Fleet(3, static=1, session_ms=45 * S)
    for number, pause_s in ((1, 40), (2, 290), (3, 60)):
        fleet.restart(number, 50 * S)
        fleet.run(pause_s * S)
    fleet.rest(60 * S)
    headline = "3 processes of 3 disappeared and came back one after another, within 5 min 40 s: ..."
    expect(fleet.only(), "deployment", "inferred", headline, "app-1", "app-2", "app-3")


def test_a_member_that_joined_during_a_deployment_is_not_one_it_replaced() -> None:
    """A new process that leaves by itself a minute later, as with a late poll, and comes back is its own incident."""
    fleet = Fleet(4, library="librdkafka")
    for number in (1, 2, 3, 4):
        fleet.restart(number, 2 * S)
        fleet.run(6 * S)
    fleet.start(5)
    fleet.run(65 * S)
    fleet[5].stop_polling()
    fleet.world.at(15 * S, fleet[5].poll_again)
    fleet.rest(60 * S)
    found = fleet.told()
    headline = "4 processes of 4 stopped and started one after another, within ...: ..."
    expect(of_kind(found, "deployment"), "deployment", "inferred", headline, "app-1", "app-2", "app-3", "app-4")
    late = of_kind(found, "poll-timeout")
    headline = "'app-5' (10.0.1.5) left, and came back 15.0 s later, on the same connection: ..."
    expect(late, "poll-timeout", "inferred", headline, "app-5")
    older = of_kind(fleet.told(OLDER), "restart")
    headline = "'app-5' (10.0.1.5) left, then came back 15.0 s later: a restart or a poll timeout"
    expect(older, "restart", "inferred", headline, "app-5")
    for each in (late, older):
        assert any("its max.poll.interval.ms is 1 min" in advice for advice in each.advice), shown(each)


@pytest.mark.parametrize("library", ["java", "librdkafka"])
def test_all_that_are_replaced_twice_are_two_deployments(library: str) -> None:
    """The second begins a minute after the first: the processes that it replaces were not there when the first began.

    This holds also if it is not known which process came back as which.
    """
    fleet = Fleet(4, library=library)
    alike = [fleet.setup(number).but(client_id="app", host="/10.0.1.1") for number in range(1, 5)]
    for setup in alike:
        fleet[int(setup.name.removeprefix("app-"))].close()
        fleet.start(0, setup)
        fleet.rest(5 * S)
    fleet.run(QUIET_MS)
    fleet.began_ms = fleet.wall_ms
    for _ in range(2):
        for setup in alike:
            fleet[int(setup.name.removeprefix("app-"))].close()
            fleet.run(2 * S)
            fleet.start(0, setup)
            fleet.rest(10 * S)
        fleet.run(60 * S)
    assert [(each.kind, len(each.culprits)) for each in fleet.told()] == [("deployment", 8), ("deployment", 8)]


def test_members_that_fell_silent_permanently_are_a_cut_beside_a_deployment() -> None:
    """None of them was replaced."""
    fleet = Fleet(8)
    for number in (1, 2, 3):
        fleet.restart(number, S)
        fleet.rest(10 * S)
    for number in (5, 6):
        fleet[number].die(with_machine=True)
    fleet.rest(30 * S)
    assert [each.kind for each in fleet.told()] == ["deployment", "network-cut"]


def test_a_crash_is_within_the_deployment_although_another_thing_had_happened_before_it() -> None:
    """A new process had joined before."""
    fleet = Fleet(6)
    fleet.start(7)
    fleet.rest(QUIET_MS - 200 * S)
    for number in (1, 2, 3):
        fleet.restart(number, S)
        if number == 2:
            fleet[5].die()
        fleet.rest(20 * S)
    scale_up, deployment, crash = fleet.told()
    assert (scale_up.kind, deployment.kind, crash.kind) == ("scale-up", "deployment", "crash")
    assert (scale_up.parent, crash.parent) == (None, deployment.id)


@pytest.mark.parametrize("after_s", [2, 5, 100])
def test_a_new_process_that_dies_when_all_were_replaced_is_a_crash_of_its_own(after_s: int) -> None:
    """The deployment was over, if only for two seconds."""
    fleet = Fleet(4)
    for number in (1, 2, 3, 4):
        fleet.restart(number, S)
        fleet.rest(8 * S)
    fleet.run(after_s * S)
    fleet[2].die()
    fleet.rest(60 * S)
    deployment, crash = fleet.told()
    assert (deployment.kind, crash.kind, crash.parent) == ("deployment", "crash", None), shown(crash)


def test_a_process_that_dies_after_the_deployment_of_others_is_a_crash_of_its_own() -> None:
    """It was not replaced; whether it was to be replaced is not known, and not reported."""
    fleet = Fleet(4)
    for number in (1, 2, 3):
        fleet.restart(number, S)
        fleet.rest(8 * S)
    fleet[4].die()
    fleet.rest(60 * S)
    deployment, crash = fleet.told()
    assert (deployment.kind, crash.kind, crash.parent) == ("deployment", "crash", None), shown(crash)


@BOTH
def test_a_member_that_died_with_one_that_is_replaced_is_a_crash_within_the_deployment(level: int) -> None:
    """Two members fell silent at the same time; one is replaced as others before it, the other does not come back."""
    fleet = Fleet(6, static=6)
    for number in (1, 2, 3):
        fleet.restart(number, 15 * S)
        if number == 3:
            fleet[5].die()
        fleet.rest(20 * S)
    fleet.rest(20 * S)
    deployment, crash = fleet.told(level)
    kind = "stopped" if level > OLDER else "crash"
    assert (deployment.kind, crash.kind, crash.parent) == ("deployment", kind, deployment.id), shown(crash)
    assert {each.group_instance_id for each in deployment.culprits} == {"app-1", "app-2", "app-3"}
    assert {each.group_instance_id for each in crash.culprits} == {"app-5"}


def test_members_are_cut_off_after_others_were_replaced_at_once() -> None:
    """The first two fell silent at the same time, too."""
    fleet = Fleet(8)
    for number in (5, 6, 7):
        fleet.restart(number, 20 * S, kill=True)
        fleet.run(2 * S if number == 5 else 6 * S)
    fleet.rest(40 * S)
    cut_off = [fleet[number] for number in (1, 2, 3)]
    outages.cut(fleet.world, cut_off)
    fleet.world.at(30 * S, partial(outages.heal, fleet.world, cut_off))
    fleet.rest(45 * S)
    deployment, cut = fleet.told()
    assert (deployment.kind, cut.kind) == ("deployment", "network-cut")
    assert {each.client_id for each in cut.culprits} == {"app-1", "app-2", "app-3"}


def test_members_that_were_heard_again_were_cut_off_although_others_are_being_replaced() -> None:
    """The log shows that they had not died (format level 4)."""
    fleet = Fleet(8)
    cut_off = [fleet[number] for number in (1, 2, 3)]
    outages.cut(fleet.world, cut_off)
    fleet.world.at(30 * S, partial(outages.heal, fleet.world, cut_off))
    fleet.rest(45 * S)
    for number in (4, 5, 6):
        fleet.restart(number, 5 * S)
        fleet.rest(10 * S)
    cut, deployment = fleet.told()
    assert (cut.kind, deployment.kind) == ("network-cut", "deployment")
    assert {each.client_id for each in cut.culprits} == {"app-1", "app-2", "app-3"}
    assert {each.client_id for each in deployment.culprits} == {"app-4", "app-5", "app-6"}


def deployed_with_leader(*, static: int = 0) -> tuple[Fleet, Process]:
    """A process is replaced, and all members wait 20 s for the leader's assignment; then the leader is replaced."""
    fleet = Fleet(6, static=static)
    leader = fleet.world.leader()
    leader.assign_slow_ms = 20 * S
    fleet.restart(5, S)
    while leader.assign_slow_ms or not leader.is_joining:
        fleet.run(500)
    fleet.run(S)
    return fleet, leader


@pytest.mark.parametrize("static", [0, 4])
@pytest.mark.parametrize("down_ms", [7 * S, 20 * S])
@BOTH
def test_a_leader_that_is_replaced_while_all_wait_for_it_was_not_slow(level: int, down_ms: int, static: int) -> None:
    """It comes back before or after it is removed: the deployment explains everything."""
    fleet, leader = deployed_with_leader(static=static)
    fleet.restart(int(leader.name.removeprefix("app-")), down_ms, kill=True)
    fleet.rest(60 * S)
    fleet.restart(6, S)
    fleet.rest(10 * S)
    incident = fleet.only(level)
    assert incident.kind == "deployment", shown(incident)
    assert {each.client_id for each in incident.culprits} == {"app-5", "app-6", leader.name}


@BOTH
def test_a_leader_that_dies_while_others_are_replaced_is_a_crash_within_the_deployment(level: int) -> None:
    """It does not come back."""
    fleet, leader = deployed_with_leader()
    leader.die()
    fleet.rest(30 * S)
    fleet.restart(6, S)
    fleet.rest(10 * S)
    deployment, crash = fleet.told(level)
    assert (deployment.kind, crash.kind, crash.parent) == ("deployment", "crash", deployment.id), shown(crash)
    assert {each.client_id for each in crash.culprits} == {leader.name}


@BOTH
def test_a_leader_that_is_replaced_after_it_was_slow_was_slow(level: int) -> None:
    """All processes are replaced after it has finally sent its assignment."""
    fleet, leader = deployed_with_leader()
    fleet.rest(30 * S)
    for number in range(1, 7):
        fleet.restart(number, S)
        fleet.rest(10 * S)
    found = fleet.told(level)
    assert of_kind(found, "slow-leader").culprits[0].client_id == leader.name
    assert len(of_kind(found, "deployment").culprits) > 6


# ---- processes under other client ids --------------------------------------------------------------------------------


def renamed(fleet: Fleet, number: int, client_id: str, *, down_ms: int = 5 * S, kill: bool = False) -> None:
    """Replace it by a process with this client id, on another host."""
    process = fleet[number]
    setup = fleet.setup(number).but(client_id=client_id, host=f"/10.0.3.{number}")
    if kill:
        process.die()
    else:
        process.close()
    fleet.world.at(down_ms, lambda: (fleet.start(number, setup), None)[1])


@pytest.mark.parametrize(("kill", "how"), [(False, "left"), (True, "was not heard from again")])
@BOTH
def test_a_pod_with_another_name_may_have_replaced_one_that_left(level: int, kill: bool, how: str) -> None:
    """Its client id differs only in the generated part. This is not certain, so the grade is unknown."""
    fleet = Fleet(4)
    before = "'app-2' (10.0.1.2)"
    for client_id in ("app-2-x2x8q", "app-2-kzv6m"):
        renamed(fleet, 2, client_id, kill=kill)
        fleet.rest(30 * S)
        after = f"'{client_id}' (10.0.3.2)"
        headline = f"{before} {how}, and ... s later {after} joined: it may have taken its place"
        expect(fleet.only(level), "restart", "unknown", headline, before.split("'")[1], client_id)
        fleet.run(QUIET_MS)
        before, fleet.began_ms = after, fleet.wall_ms


def test_one_pod_under_another_name_is_a_part_of_the_deployment() -> None:
    """The others are identified by their instance ids."""
    fleet = Fleet(3, static=2)
    for number in (1, 2):
        fleet.restart(number, 12 * S)
        fleet.rest(20 * S)
    renamed(fleet, 3, "app-3-x2x8q")
    fleet.rest(20 * S)
    assert (fleet.only().kind, fleet.only().grade) == ("deployment", "unknown")


def test_a_pod_with_another_name_may_have_replaced_a_dropped_one() -> None:
    """The rebalance waits for it until the rebalance timeout, since its session is longer."""
    fleet = Fleet(4, session_ms=100 * S, rebalance_ms=20 * S)
    renamed(fleet, 2, "app-2-x2x8q", kill=True)
    fleet.rest(60 * S)
    assert (fleet.only().kind, fleet.only().grade) == ("restart", "unknown")


def test_a_number_is_a_place_of_its_own() -> None:
    """'app-7' does not replace 'app-2'; nor does one that joined before the other left, or has an instance id."""
    for setup in ({}, {"client_id": "app-2-x2x8q", "instance": "app-7"}):
        fleet = Fleet(4)
        fleet[2].die()
        fleet.run(3 * S)
        fleet.start(7, fleet.setup(7).but(**setup))
        fleet.rest(30 * S)
        assert {each.kind for each in fleet.told()} == {"crash", "scale-up"}
    fleet = Fleet(4)
    fleet.start(7, fleet.setup(7).but(client_id="app-2-x2x8q"))
    fleet.rest(10 * S)
    fleet[2].close()
    fleet.rest(10 * S)
    assert [each.kind for each in fleet.told(OLDER)] == ["scale-up", "scale-down"]


@pytest.mark.parametrize(("kill", "how"), [(True, "was not heard from again"), (False, "left")])
def test_a_client_id_that_comes_again_from_another_host_may_be_the_same_process(kill: bool, how: str) -> None:
    """A pod was moved. This is not certain, so the grade is neither recorded nor inferred."""
    fleet = Fleet(5)
    process, moved = fleet[2], fleet.setup(2).but(host="/10.0.9.9")
    if kill:
        process.die()
    else:
        process.close("the consumer is being closed")
    fleet.world.at(60 * S, lambda: (fleet.start(2, moved), None)[1])
    fleet.rest(90 * S)
    headline = (
        f"'app-2' (10.0.1.2) {how}, and ... later a process with its client id joined from 10.0.9.9: it may be the same"
        " process, moved"
    )
    expect(fleet.only(), "restart", "unknown", headline, "app-2")


def test_a_shared_client_id_does_not_identify_a_process_on_another_host() -> None:
    """The crash is one incident, the new process another."""
    fleet = Fleet(5)
    for number in (6, 7):
        fleet.start(number, fleet.setup(number).but(client_id="consumer-1"))
    fleet.rest(60 * S)
    fleet[6].die()
    fleet.world.at(60 * S, lambda: (fleet.start(8, fleet.setup(8).but(client_id="consumer-1")), None)[1])
    fleet.rest(90 * S)
    assert [incident.kind for incident in fleet.told()][-2:] == ["crash", "scale-up"]


@pytest.mark.parametrize(
    ("again", "kind", "by"), [((1, 2, 3, 4), "deployment", "4 processes of 4 "), ((2,), "restart", "'app-2' ")]
)
@BOTH
def test_a_deployment_replaces_each_process_once(level: int, again: tuple[int, ...], kind: str, by: str) -> None:
    """If all are replaced again, that is a second deployment, such as a rollback; a single one is a restart."""
    fleet = Fleet(4, static=4, session_ms=6 * S)
    for number in (1, 2, 3, 4, *again):
        fleet.restart(number, 2 * S)
        fleet.run(10 * S)
    fleet.rest(20 * S)
    first, second = fleet.told(level)
    assert (first.kind, second.kind) == ("deployment", kind), shown(second)
    assert first.headline.startswith("4 processes of 4 ")
    assert second.headline.startswith(by)


def test_static_restarts_with_unseen_beginnings_are_not_called_simultaneous() -> None:
    """The log has when each process joined, soon after one another, but the group may have waited for each of them."""
    fleet = Fleet(4, static=4)
    for number in (1, 2, 3):
        fleet.restart(number, 500)
        fleet.run(S)
    fleet.rest(20 * S)
    headline = "3 processes of 4 were replaced within ...: ..."
    expect(fleet.only(), "deployment", "recorded", headline, "app-1", "app-2", "app-3")


def formed_anew() -> Fleet:
    """Shut down three processes, and start them again."""
    fleet = Fleet(3)
    close_all(fleet)
    fleet.run(QUIET_MS)
    for number in (1, 2, 3):
        fleet.start(number)
    fleet.rest(20 * S)
    return fleet


def test_processes_that_join_and_leave_again_are_not_a_blue_green_deployment() -> None:
    """As many left within ten minutes as had joined, but they are the same processes."""
    fleet = formed_anew()
    close_all(fleet)
    assert [each.kind for each in fleet.told()] == ["shutdown", "start", "shutdown"]


def test_a_deployment_between_start_and_shutdown_makes_no_blue_green_deployment() -> None:
    """The first to join and the last to leave are the same processes, as on a real day with real clients."""
    fleet = formed_anew()
    for number in (1, 2, 3):
        fleet.restart(number, 2 * S)
        fleet.rest(10 * S)
    close_all(fleet)
    assert [each.kind for each in fleet.told()] == ["shutdown", "start", "deployment", "shutdown"]


def close_all(fleet: Fleet) -> None:
    for number in (1, 2, 3):
        fleet[number].close("the consumer is being closed")
        fleet.run(2 * S)
    fleet.rest(5 * S)


def test_two_restarts_in_a_large_group_are_not_a_deployment() -> None:
    """Two of eight are less than a third."""
    fleet = Fleet(8)
    for number in (1, 2):
        fleet.restart(number, 5 * S)
        fleet.rest(20 * S)
    assert [each.kind for each in fleet.told()] == ["restart", "restart"]


def test_a_member_that_joins_after_one_of_the_first_left_is_not_part_of_a_start() -> None:
    """The start has ended then."""
    fleet = Fleet(0)
    for number in (1, 2):
        fleet.start(number)
    fleet.rest(20 * S)
    fleet[1].close("the consumer is being closed")
    fleet.rest(20 * S)
    fleet.start(3)
    fleet.rest(20 * S)
    assert [(each.kind, len(each.culprits)) for each in fleet.told()] == [
        ("start", 2),
        ("scale-down", 1),
        ("scale-up", 1),
    ]


def test_of_two_restarts_of_a_process_the_one_in_the_wave_belongs_to_the_deployment() -> None:
    """One was restarted alone half a minute before all were replaced one after another, this one first or last."""
    for order in ((1, 2, 3, 4), (2, 3, 4, 1)):
        fleet = Fleet(4, static=2)
        fleet.restart(1, 1 * S)
        fleet.run(40 * S)
        alone_ms = fleet.wall_ms - 20 * S
        for number in order:
            fleet.restart(number, 2 * S)
            fleet.run(8 * S)
        fleet.rest(60 * S)
        found = fleet.told()
        alone, deployment = of_kind(found, "restart"), of_kind(found, "deployment")
        assert wall_ms_of(alone.started_at) < alone_ms
        assert all(wall_ms_of(each.at) > alone_ms for each in deployment.chain if each.at is not None)
        expect(deployment, "deployment", "inferred", "4 processes of 4 ...", "app-1", "app-2", "app-3", "app-4")


def test_two_deployments_in_a_row_keep_their_own_restarts() -> None:
    """Even if the first restart of the second one is close to the last of the first one."""
    fleet = Fleet(3, static=3)
    for gap_ms in (40 * S, 5 * S):
        for number in (1, 2, 3):
            fleet.restart(number, 2 * S)
            fleet.run(gap_ms)
    fleet.rest(60 * S)
    first, second = [each for each in fleet.told() if each.kind == "deployment"]
    assert max(each.at or "" for each in first.chain) < min(each.at or "" for each in second.chain)


def test_a_client_id_without_a_dash_has_no_generated_part() -> None:
    """'audit' does not replace 'orders': nothing of their names is the same."""
    fleet = Fleet(2)
    fleet.start(3, fleet.setup(3).but(client_id="orders"))
    fleet.rest(QUIET_MS)
    fleet.began_ms = fleet.wall_ms
    fleet[3].close()
    fleet.run(5 * S)
    fleet.start(4, fleet.setup(4).but(client_id="audit"))
    fleet.rest(30 * S)
    assert [each.kind for each in fleet.told()] == ["scale-down", "scale-up"]


def test_replacements_are_not_paired_if_more_members_joined_than_left() -> None:
    """Three left, four joined, none under the name of another."""
    fleet = Fleet(6)
    for number in (1, 2, 3):
        fleet[number].close()
    fleet.run(5 * S)
    for number in (7, 8, 9, 10):
        fleet.start(number)
    fleet.rest(60 * S)
    assert sorted(each.kind for each in fleet.told()) == ["scale-down", "scale-up"]
