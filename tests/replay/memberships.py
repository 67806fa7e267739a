"""Stories with planned membership, made by the rules: each is a harness that was played to its end.

`a` and `b` are members from the beginning, with six partitions each; each docstring has the rest.
"""

from collections.abc import Callable
from typing import Any

from muster.coordinator.group.commands import ConfigOperation
from muster.coordinator.group.configs import (
    LEARNER_TIMEOUT,
    LEARNERS,
    REBALANCE,
    REGISTERED,
    REGISTRATION_TIMEOUT,
    RETIRED,
    RETIREMENT_TIMEOUT,
    TARGET_GROUP_SIZE,
)
from tests.coordinator.group.client import Client
from tests.coordinator.group.harness import GROUP_ID, Harness
from tests.replay.played import alive, rejoin, stable

SET, DELETE, APPEND, SUBTRACT = ConfigOperation


def two(names: str = "ab", *, group_id: str = GROUP_ID, **given: Any) -> tuple[Harness, list[Client]]:
    """The group at the beginning."""
    h = Harness(group_id=group_id)
    clients = [h.static(name, host=f"/10.0.0.{position}", **given) for position, name in enumerate(names, start=1)]
    stable(*clients)
    h.sleep(1_000)
    return h, clients


def registration(group_id: str = GROUP_ID) -> Harness:
    """Three instances are registered and join one after another; then the group rebalances once."""
    h, (a, b) = two(group_id=group_id)
    h.alter((REGISTERED, SET, "c,d,e"), (REGISTRATION_TIMEOUT, SET, "60000"))
    arrived = [h.static("c"), h.static("d"), h.static("e")]
    for client in arrived:
        alive(h, 3_000, a, b)
        client.join()
    rejoin(a, b, with_them=arrived)
    return h


def registration_late(group_id: str = GROUP_ID) -> Harness:
    """One of three registered instances joins in time."""
    h, (a, b) = two(group_id=group_id)
    h.alter((REGISTERED, SET, "c,d,e"), (REGISTRATION_TIMEOUT, SET, "15000"))
    c = h.static("c")
    alive(h, 3_000, a, b)
    c.join()
    alive(h, 12_000, a, b)
    rejoin(a, b, with_them=[c])
    return h


def registration_interrupted(group_id: str = GROUP_ID) -> Harness:
    """While one of two registered instances waits, `b` leaves; the other registration is withdrawn later."""
    h, (a, b) = two(group_id=group_id)
    h.alter((REGISTERED, SET, "c,d"))
    c = h.static("c")
    c.join()
    alive(h, 3_000, a, b)
    b.leave()
    rejoin(a, with_them=[c])
    h.alter((REGISTERED, SUBTRACT, "d"))
    return h


def expansion(group_id: str = GROUP_ID) -> Harness:
    """The joins of a static and a dynamic new member are gathered."""
    h, (a, b) = two(group_id=group_id)
    h.set(members_expansion_delay_ms="9000")
    newcomers = [h.static("c"), h.dynamic("d")]
    for client in newcomers:
        client.enter()
    alive(h, 9_000, a, b)
    rejoin(a, b, with_them=newcomers)
    return h


def retirement(group_id: str = GROUP_ID) -> Harness:
    """`c` and `d` are retired and leave, one after the other."""
    h, (a, b, c, d) = two("abcd", group_id=group_id)
    h.alter((RETIRED, APPEND, "c,d"))
    alive(h, 2_000, a, b, c, d)
    c.leave()
    alive(h, 2_000, a, b, d)
    d.leave("the consumer is being closed")
    rejoin(a, b)
    return h


def retirement_late(group_id: str = GROUP_ID) -> Harness:
    """`c`, `d` and `e` are retired; the retirement of `e` is withdrawn, `c` leaves, `d` is removed at the timeout."""
    h, (a, b, c, d, e) = two("abcde", group_id=group_id)
    h.alter((RETIRED, APPEND, "c,d,e"), (RETIREMENT_TIMEOUT, SET, "9000"))
    h.alter((RETIRED, SUBTRACT, "e"))
    alive(h, 2_000, a, b, c, d, e)
    c.leave()
    alive(h, 7_000, a, b, d, e)
    rejoin(a, b, e)
    return h


def retirement_withdrawn(group_id: str = GROUP_ID) -> Harness:
    """`c` has left when the retirement of `d` is withdrawn."""
    h, (a, b, c, d) = two("abcd", group_id=group_id)
    h.alter((RETIRED, APPEND, "c,d"))
    c.leave()
    h.alter((RETIRED, SUBTRACT, "d"))
    rejoin(a, b, d)
    return h


def learners_promoted(group_id: str = GROUP_ID) -> Harness:
    """Two learners join; one is promoted."""
    h, (a, b) = two(group_id=group_id)
    h.set(members_learner_timeout_ms="30000")
    newcomers = [h.static("c"), h.dynamic("d")]
    for client in newcomers:
        client.enter()
        client.sync()
    h.alter((LEARNERS, SUBTRACT, "c"))
    rejoin(a, b, *newcomers)
    return h


def learners_done(group_id: str = GROUP_ID) -> Harness:
    """A learner's time has passed."""
    h, (a, b) = two(group_id=group_id)
    h.set(members_learner_timeout_ms="6000")
    c = h.static("c")
    c.enter()
    c.sync()
    alive(h, 6_000, a, b, c)
    rejoin(a, b, c)
    return h


def standby(group_id: str = GROUP_ID) -> Harness:
    """`b` falls silent, `c` takes over, `b` comes back as a standby, the standby `d` leaves; then a rebalance."""
    h, (a, b) = two(group_id=group_id)
    h.set(target_group_size="2")
    c, d = h.static("c"), h.static("d")
    for client in (c, d):
        client.join()
        client.sync()
    alive(h, 10_000, a, c, d)
    take_over(c)
    back = b.restarted()
    back.join()
    back.sync()
    alive(h, 3_000, a, back, c, d)
    d.leave()
    h.alter((REBALANCE, SET, "static"))
    rejoin(a, back, c)
    return h


def standby_for_the_leader(group_id: str = GROUP_ID) -> Harness:
    """The leader `a` leaves, `c` takes over its partitions and the lead; then `b` is lost, and there is no standby."""
    h, (a, _b) = two(group_id=group_id)
    h.set(target_group_size="2")
    c = h.static("c", host="/10.0.0.3")
    c.join()
    c.sync()
    a.leave()
    take_over(c)
    alive(h, 10_000, c)
    return h


def take_over(called: Client) -> None:
    """The called standby is notified with its next heartbeat."""
    called.harness.sleep(700)
    called.heartbeat()
    called.join()
    called.harness.sleep(150)
    called.sync()


def configured(group_id: str = GROUP_ID) -> Harness:
    """The target size is reduced by one active member, and learners are turned off."""
    h, (a, b) = two(group_id=group_id)
    h.set(target_group_size="2", members_learner_timeout_ms="60000")
    h.alter((TARGET_GROUP_SIZE, SET, "1"), (LEARNER_TIMEOUT, DELETE, None))
    rejoin(a, b)
    return h


def duel(group_id: str = GROUP_ID) -> Harness:
    """Two processes at 10.0.0.2 and 10.0.0.7 take the instance id `b` from each other."""
    h, (a, b) = two(group_id=group_id)
    return fight(h, a, b)


def duel_after_restart() -> Harness:
    """The same, five minutes after a restart of `b`."""
    h, (a, b) = two()
    b = b.restarted(host="/10.0.0.2")
    b.join()
    for _ in range(60):
        alive(h, 5_000, a, b)
    return fight(h, a, b)


def restart_after_duel() -> Harness:
    """The same without a rebalance, and five minutes later the winner is restarted."""
    h, (a, b) = two()
    b = take_turns(h, a, b)
    for _ in range(60):
        alive(h, 5_000, a, b)
    b.restarted(host="/10.0.0.2").join()
    return h


def fight(h: Harness, a: Client, b: Client) -> Harness:
    b = take_turns(h, a, b)
    h.alter((REBALANCE, SET, "static"))
    rejoin(a, b)
    return h


def take_turns(h: Harness, a: Client, b: Client) -> Client:
    """The instance id of `b` changes hands four times. Returns its holder."""
    for number in range(4):
        rival = b.restarted(host="/10.0.0.2" if number % 2 else "/10.0.0.7")
        rival.join()
        alive(h, 1_000, a, rival)
        b.heartbeat()
        b = rival
    return b


STORIES: tuple[Callable[[], Harness], ...] = (
    registration,
    registration_late,
    registration_interrupted,
    expansion,
    retirement,
    retirement_late,
    retirement_withdrawn,
    learners_promoted,
    learners_done,
    standby,
    standby_for_the_leader,
    configured,
    duel,
)


def unfinished(group_id: str = GROUP_ID) -> Harness:
    """Everything pending at once: settings, registrations, a retiring member, a learner, a standby, a called one."""
    h, (_a, b) = two(group_id=group_id)
    h.set(target_group_size="2", members_expansion_delay_ms="30000")
    c, d = h.static("c"), h.static("d")
    for client in (c, d):
        client.join()
        client.sync()
    h.set(members_learner_timeout_ms="60000")
    e = h.dynamic("e")
    e.enter()
    e.sync()
    h.alter((REGISTERED, APPEND, "x,y"), (RETIRED, APPEND, "a"))
    b.leave()
    return h
