"""Repeats in a history are read once: equal bytes are one object, other bytes are never taken for them."""

import msgspec
import pytest

from muster.events.avro import codec, repeats
from muster.events.avro.codec import Registry
from muster.events.events import GroupAdvanced, MemberAssigned, MemberRejoined
from muster.events.ids import GroupId, MemberId
from muster.events.records import BrokenRecord
from tests.events.samples import full_event

NEWEST = {1: [codec.REGISTRY.newest_schema_of(each) for each in (GroupAdvanced, MemberAssigned, MemberRejoined)]}
ADVANCED: GroupAdvanced = full_event(GroupAdvanced)
ASSIGNED: MemberAssigned = full_event(MemberAssigned)
REJOINED: MemberRejoined = full_event(MemberRejoined)


def read(registry: Registry, *events: GroupAdvanced | MemberAssigned | MemberRejoined) -> list[object]:
    return [registry.decode(registry.encode(event, 1)) for event in events]


def test_equal_parts_of_two_events_are_one_object() -> None:
    """The group's state, the cause, and the member's identity, whatever the type of the events."""
    later = msgspec.structs.replace(ADVANCED, seq=ADVANCED.seq + 1)
    assigned = msgspec.structs.replace(ASSIGNED.member, assignment=b"another")
    advanced, again, first, second = read(
        Registry(NEWEST), ADVANCED, later, REJOINED, msgspec.structs.replace(ASSIGNED, member=assigned)
    )
    assert isinstance(advanced, GroupAdvanced)
    assert isinstance(again, GroupAdvanced)
    assert (again.group is advanced.group, again.why is advanced.why, again.group_id is advanced.group_id) == (
        True,
    ) * 3
    assert isinstance(first, MemberRejoined)
    assert isinstance(second, MemberAssigned)
    assert second.member.protocols is first.member.protocols
    assert second.member == assigned


def test_changed_parts_are_decoded_again() -> None:
    """Each field that often stays the same, changed alone, between two events with the old value."""
    other = {int: 5, str: "x", bool: False, tuple: (), bytes: b"x"}
    for name in ("client_id", "client_host", "principal", "session_timeout_ms", "protocols", "assignment", "member_id"):
        value = getattr(REJOINED.member, name)
        member = msgspec.structs.replace(REJOINED.member, **{name: other[type(value)]})
        changed = msgspec.structs.replace(REJOINED, member=member)
        assert read(Registry(NEWEST), REJOINED, changed, REJOINED) == [REJOINED, changed, REJOINED]
    for event in (
        msgspec.structs.replace(ADVANCED, group_id=GroupId("another")),
        msgspec.structs.replace(ADVANCED, incarnation=1),
        msgspec.structs.replace(ADVANCED, group=msgspec.structs.replace(ADVANCED.group, generation_id=1)),
        msgspec.structs.replace(ADVANCED, why=msgspec.structs.replace(ADVANCED.why, member_id=MemberId("x"))),
        msgspec.structs.replace(ADVANCED, why=msgspec.structs.replace(ADVANCED.why, client_reason=None)),
    ):
        assert read(Registry(NEWEST), ADVANCED, event, ADVANCED) == [ADVANCED, event, ADVANCED]


@pytest.mark.parametrize("event", [ADVANCED, REJOINED], ids=lambda event: type(event).__name__)
def test_a_value_that_ends_too_early_leaves_nothing_that_the_next_is_taken_for(
    event: GroupAdvanced | MemberRejoined,
) -> None:
    """A truncated string is not the known one, wherever it is cut."""
    registry = Registry(NEWEST)
    value = registry.encode(event, 1)
    for length in range(codec.HEADER_BYTES, len(value)):
        with pytest.raises(BrokenRecord):
            registry.decode(value[:length])
        assert registry.decode(value) == event
        for known in registry._known.values():
            known.clear()


def test_the_remembered_parts_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """There are limits to the number of each form, and to the size: a subscription may have megabytes."""
    monkeypatch.setattr(repeats, "KNOWN_MAX", 3)
    registry = Registry(NEWEST)
    sizes = set()
    for number in range(10):
        member = msgspec.structs.replace(REJOINED.member, member_id=MemberId(f"member-{number}"))
        event = msgspec.structs.replace(REJOINED, member=member)
        assert read(registry, event) == [event]
        sizes.add(max(map(len, registry._known.values())))
    assert sizes == {1, 2, 3}
    large = msgspec.structs.replace(REJOINED.member, client_host="h" * repeats.KNOWN_BYTES_MAX)
    one, other = read(registry, *[msgspec.structs.replace(REJOINED, member=large)] * 2)
    assert isinstance(one, MemberRejoined)
    assert isinstance(other, MemberRejoined)
    assert one.member.client_host is not other.member.client_host
