"""The sentences about refused consumers: their names, the offered and the required protocols, how often, the advice.

The same history at an older format level does not have the offered protocols.
"""

from typing import Any

import msgspec
import pytest

from muster.coordinator.group.connections import ConnectionRecord
from muster.events.ids import UNKNOWN_MEMBER_ID, MemberId
from muster.events.records import FORMAT_LEVEL
from muster.events.state import Protocol
from muster.replay.fleet.simulation.world import client
from muster.replay.fleet.simulation.world.assignors import as_subscription
from tests.replay.incidents.fleet import BOTH, OLDER, Fleet, expect, of_kind, statements

S = 1_000
BY_HOST = "'app-9' (10.0.2.9)"


def try_to_join(fleet: Fleet, *, number: int = 9, **changed: Any) -> None:
    """Send a consumer's join, which is refused; `changed`: fields of its JoinGroup."""
    join = client.join_group(
        fleet.setup(number),
        fleet.world.rules,
        0,
        member_id=UNKNOWN_MEMBER_ID,
        proposed_member_id=MemberId(f"refused-{number}"),
        owned=frozenset(),
        reason=None,
        connection=ConnectionRecord(number=number),
    )
    fleet.world.rules.send(msgspec.structs.replace(join, **changed))


def offers(*names: str) -> dict[str, Any]:
    """Return the protocols of these assignors, with the subscription of the group's members."""
    metadata = as_subscription(("orders",), None)
    return {"protocols": tuple(Protocol(name=name, metadata=metadata) for name in names)}


@pytest.mark.parametrize(
    ("level", "what"),
    [
        (FORMAT_LEVEL, "it offered roundrobin and sticky, and all members of the group have range"),
        (OLDER, "it had no protocol in common with the group, whose members all have range; what was offered is ..."),
    ],
)
def test_a_consumer_with_another_assignor_is_reported_with_both_protocols(level: int, what: str) -> None:
    """It is no member, so the group does not rebalance."""
    fleet = Fleet(3)
    for _ in range(3):
        try_to_join(fleet, **offers("roundrobin", "sticky"))
        fleet.run(10 * S)
    incident = fleet.only(level)
    expect(incident, "refused", "recorded", f"{BY_HOST} was refused 3 times in 20.0 s: {what}", "app-9")
    assert incident.rebalances == ()
    assert incident.advice[0].startswith("add range to partition.assignment.strategy")
    assert statements(incident) == f"{BY_HOST} was refused 3 times"


def test_a_group_id_taken_by_another_type_is_reported() -> None:
    fleet = Fleet(2)
    try_to_join(fleet, protocol_type="connect")
    expect(
        fleet.only(),
        "refused",
        "recorded",
        f"{BY_HOST} was refused: it asked for the protocol type connect, and the group is of type consumer",
        "app-9",
    )
    assert fleet.only().advice == (
        "the group id is taken by clients of type consumer: give these a group.id of their own",
    )


@BOTH
def test_an_invalid_session_timeout_is_reported(level: int) -> None:
    fleet = Fleet(2)
    try_to_join(fleet, session_timeout_ms=2_000_000)
    text = " of 2000 s" if level == FORMAT_LEVEL else ""
    incident = fleet.only(level)
    assert incident.kind == "refused"
    assert f"it asked for a session timeout{text}, which is outside of group.min." in incident.headline


def test_metadata_that_is_too_large_is_reported() -> None:
    fleet = Fleet(2)
    fleet.world.rules.settings = msgspec.structs.replace(fleet.world.rules.settings, member_metadata_max_bytes=1)
    try_to_join(fleet)
    assert "is larger than --member-metadata-max-bytes" in fleet.only().headline


def test_clients_that_are_refused_for_the_same_are_one_incident() -> None:
    """Some are named, the others counted. Ten in a minute are logged, and the number is a minimum.

    The eleven refusals that were not logged are of clients that did not try again.
    """
    fleet = Fleet(2)
    for number in range(10, 30):
        try_to_join(fleet, number=number, **offers("sticky"))
        fleet.run(10)
    try_to_join(fleet, number=30, protocol_type="connect")
    fleet.run(60 * S)
    try_to_join(fleet, number=10, **offers("sticky"))
    found = fleet.told()
    assert [each.kind for each in found] == ["refused"]
    assert "5 others were refused at least 11 times in 1 min 00 s" in found[0].headline


def test_a_refused_join_explains_no_rebalance() -> None:
    """A member crashes meanwhile, and the rebalance belongs to the crash."""
    fleet = Fleet(4)
    fleet[3].die()
    fleet.run(9 * S)
    try_to_join(fleet, **offers("sticky"))
    fleet.rest(10 * S)
    found = fleet.told()
    assert of_kind(found, "refused").rebalances == ()
    assert len(of_kind(found, "crash").rebalances) == 1


def test_a_full_group_is_reported_with_the_refused_clients_and_its_size() -> None:
    fleet = Fleet(3)
    fleet.world.rules.settings = msgspec.structs.replace(fleet.world.rules.settings, max_size=3)
    try_to_join(fleet)
    incident = fleet.only()
    expect(
        incident,
        "capacity",
        "recorded",
        f"the group has as many members as group.max.size allows, 3 members: {BY_HOST} was refused",
    )
    assert "raise group.max.size" in incident.advice[0]
    assert statements(incident) == f"{BY_HOST} was refused"


def test_a_group_that_only_ever_refused_has_a_history() -> None:
    """It is created only for the refusal, and does not exist afterwards."""
    fleet = Fleet(0)
    assert fleet.world.rules.group is None
    try_to_join(fleet, session_timeout_ms=1)
    assert fleet.world.rules.group is None
    (incident,) = fleet.told()
    assert incident.kind == "refused"
    assert f"{BY_HOST} was refused: it asked for a session timeout of 1 ms, which is outside" in incident.headline
