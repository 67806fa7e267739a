"""Members that leave wrongly, and clients with an unsupported protocol. S17, S20; clients/ has real ones."""

from muster.coordinator.wire.api import Fault
from muster.coordinator.wire.registry import APIS
from muster.events.causes import Cause
from muster.events.events import MemberRemoved, RebalanceStarted
from tests.coordinator.group.harness import Harness, story
from tests.coordinator.kio_client import with_length
from tests.coordinator.running_server import running
from tests.coordinator.serving import enter, serving

NEWER_GROUP_APIS = {
    "ConsumerGroupHeartbeat": 68,
    "ConsumerGroupDescribe": 69,
    "ShareGroupHeartbeat": 76,
    "ShareGroupDescribe": 77,
    "StreamsGroupHeartbeat": 88,
    "StreamsGroupDescribe": 89,
}


def test_s17_a_static_member_that_leaves_is_distinguished_from_a_removed_one() -> None:
    """A client library sent LeaveGroup on close for static members too, and each deployment rebalanced for no visible
    reason: such a leave must be one rebalance, with a cause of its own that names member, instance and client.
    """
    h = Harness()
    a, b, c = h.stable_group(h.static("a"), h.static("b"), h.static("c"))
    b.instance = None  # like LeaveGroup below v3, which has no instance id
    for client, instance in ((b, "b"), (c, "c")):
        call = client.leave("closing")
        assert story(call.events)[0] == (MemberRemoved, Cause.MEMBER_LEFT)
        assert (call.events[0].why.group_instance_id, call.events[0].why.client_id) == (instance, f"app-{instance}")
    assert sum(isinstance(event, RebalanceStarted) for event in h.events) == 2, "the first one, and one for both"
    assert story(h.leave_instance("a").events)[0] == (MemberRemoved, Cause.MEMBER_REMOVED_BY_ADMIN)
    assert a.join().error.name == "unknown_member_id"


async def test_s20_no_newer_group_protocol_is_offered_or_half_spoken() -> None:
    """A static member that moved between the classic and the newer protocol was replaced wrongly, or not at all, where
    both owned one group: the newer protocols must not be offered, a request of theirs must close its connection before
    it affects a group, and no group may be shown as one of theirs.
    """
    assert not set(NEWER_GROUP_APIS.values()) & APIS.keys()
    assert {key for key in APIS if "group" in APIS[key].name.lower()} == {11, 13, 14, 15, 16, 42}
    async with serving() as muster:
        classic = await muster.connect("classic")
        await enter(classic, 9, instance="a")
        groups = (await classic.ask("ListGroups", 5, states_filter=[], types_filter=[]))["groups"]
        assert [(group["group_id"], group["group_type"]) for group in groups] == [("orders", "classic")]
        newer = await classic.ask("ListGroups", 5, states_filter=[], types_filter=["consumer", "share", "streams"])
        assert newer["groups"] == []
    for key in NEWER_GROUP_APIS.values():
        async with running() as subject:
            client = await subject.connect()
            start = key.to_bytes(2, "big") + b"\x00\x00\x00\x00\x00\x07\xff\xff\x00"
            client.writer.write(with_length(start + b"\x07orders"))
            assert await client.is_closed()
            assert subject.metrics.protocol_errors == {Fault.UNKNOWN_API: 1}
            assert subject.groups.commands == []
