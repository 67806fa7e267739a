"""Recent members of upstream's groups: those that the broker has accepted as members."""

from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from muster.coordinator.sidecar.groups.recent_members import RecentMembers
from muster.events.ids import REMEMBERED_ID_LENGTH_MAX, GroupId, MemberId
from tests.coordinator.kio_client import KEYS, frame, with_length
from tests.coordinator.sidecar.relaying import relaying
from tests.coordinator.sidecar.scripted_broker import ReceivedRequest, WithheldResponses, response, scripted_broker
from tests.waiting import until

GROUP = GroupId("theirs")
VERSIONS = [("Heartbeat", 0), ("Heartbeat", 3), ("Heartbeat", 4), ("SyncGroup", 3), ("SyncGroup", 5)]


def request(name: str, version: int, member_id: str, **body: Any) -> bytes:
    """A request of a client that claims to be this member."""
    fields = {"group_id": GROUP, "generation_id": 1, "group_instance_id": None, "member_id": member_id, **body}
    if name == "SyncGroup":
        fields |= {"protocol_type": "consumer", "protocol_name": "range", "assignments": []}
    return with_length(frame(name, version, **fields))


def respond(requested: ReceivedRequest, error: ErrorCode) -> None:
    """The response that a broker would send."""
    more: dict[str, Any] = {}
    if requested.api_key == KEYS["SyncGroup"]:
        more = {"assignment": b"all of it", "protocol_type": None, "protocol_name": None}
    requested.tell(response(requested.api_key, requested.api_version, error_code=error, **more))


@pytest.mark.parametrize(("name", "version"), VERSIONS)
async def test_a_member_is_known_when_the_broker_has_answered(name: str, version: int) -> None:
    """Not before: a client that has not authenticated gets no response."""
    async with scripted_broker() as broker, relaying({1: broker}) as relay:
        held = WithheldResponses(broker, KEYS[name])
        client = await relay.connect(1)
        client.send(request(name, version, "m"))
        await until(lambda: held.asked)
        assert relay.moves.recent_members._seen_ms == {}
        relay.now_ms += 500
        respond(held.asked[0], ErrorCode.none)
        await client.answer()
        assert relay.moves.recent_members._seen_ms == {(GROUP, "m"): relay.now_ms}


async def test_a_client_refused_by_the_broker_is_not_a_member() -> None:
    """A rebalance error goes to every member, so it is no refusal. Responses are passed on unchanged."""
    answers = {
        "refused": ErrorCode.group_authorization_failed,
        "unknown": ErrorCode.unknown_member_id,
        "fenced": ErrorCode.fenced_instance_id,
        "member": ErrorCode.rebalance_in_progress,
    }
    async with scripted_broker() as broker, relaying({1: broker}) as relay:
        broker.script = lambda requested: respond(requested, answers[requested.body.member_id])
        client = await relay.connect(1)
        for member_id, error in answers.items():
            assert await client.ask(request("Heartbeat", 0, member_id)) == error.value.to_bytes(2, "big")
        assert list(relay.moves.recent_members._seen_ms) == [(GROUP, "member")]


def test_ids_of_any_length_are_not_kept() -> None:
    """Each member uses little memory."""
    recent, long = RecentMembers(lambda: 0), "m" * REMEMBERED_ID_LENGTH_MAX
    for group_id, member_id, is_kept in (("g", long + "m", False), (long + "m", "m", False), (long, long, True)):
        recent.record(GroupId(group_id), MemberId(member_id), 0)
        assert recent.is_recent(GroupId(group_id), MemberId(member_id), 0) is is_kept
