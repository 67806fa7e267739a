"""The cost of a what-if depends on the number of events, not on events times members."""

from muster.replay.whatif.addresses import SharedAddresses
from muster.replay.whatif.alterations import Alterations
from tests.coordinator.group.client import Client
from tests.coordinator.group.test_cost import Work
from tests.replay.histories import Script
from tests.replay.lived import Unchecked
from tests.replay.played import history_of, stable, sync
from tests.replay.whole import what_if


def work_of(size: int) -> float:
    """Return the work for each member of a group in which all are restarted, and half of them die then."""
    h = Unchecked()
    clients = stable(*(_member(h, number) for number in range(size)))
    restarted = [_member(h, number) for number in range(size)]
    for client, successor in zip(clients, restarted, strict=True):
        h.sleep(20)
        client.leave()
        h.sleep(3)
        successor.enter()
    while any(client.joined is None for client in restarted):
        h.sleep_until_next()
    sync(*restarted)
    for _ in range(12):
        h.sleep(5_000)
        for client in restarted[size // 2 :]:
            client.heartbeat()
    history, work = history_of(h), Work()
    with work.counted():
        result = what_if(history, Alterations(is_static=True))
    assert result.would > 0
    return work.total / size


def _member(h: Unchecked, number: int) -> Client:
    timeouts = {"session_timeout_ms": 45_000, "rebalance_timeout_ms": 300_000}
    return h.dynamic(f"app-{number}", host=f"/10.0.{number // 250}.{number % 250}", **timeouts)


def test_a_member_costs_the_same_in_a_group_of_any_size() -> None:
    """No request makes the play search all members for silent ones, or for the next one to rejoin or sync."""
    work_of(10)  # warm up caches
    assert work_of(160) < 2 * work_of(40)


def addresses_of(size: int) -> float:
    """The work that each dynamic member of a group is whose clients have one id and come through one proxy."""
    script = Script().created()
    members = [script.member("app", static=False, client_id="app", host="/10.0.0.1") for _ in range(size)]
    script.start(script.joined(members[0]))
    for member in members[1:]:
        script.wait(1).advanced(script.joined(member))
    items, shared, work = script.history().items, SharedAddresses(), Work()
    with work.counted():
        for item in items:
            shared.feed(item)
        shared.end()
    assert shared.has(members[0])
    return work.total / size


def test_a_member_costs_the_same_among_any_number_with_its_address() -> None:
    """As behind a load balancer, where all members have one host."""
    addresses_of(10)
    assert addresses_of(400) < 2 * addresses_of(100)
