"""Heartbeat (key 12).

v1 adds the throttle time. v3 adds the group instance id (KIP-345). v4 is flexible.

An accepted heartbeat yields a ticket for the next one with the same bytes; see coordinator/net/heartbeats.py.
"""

from functools import cache

from kio.schema.errors import ErrorCode

from muster.coordinator.group.commands import Caller, Heartbeat
from muster.coordinator.group.outcomes import HeartbeatOutcome, Outcome
from muster.coordinator.service import Service
from muster.coordinator.wire.api import Answer, Api, Body, Fields, RequestContext
from muster.coordinator.wire.messages import message
from muster.events.ids import MemberId

KEY = 12


def handle(body: Body, context: RequestContext, service: Service, answer: Answer) -> None:
    command = decode(body, context.caller(service))

    def reply(outcome: Outcome) -> None:
        assert isinstance(outcome, HeartbeatOutcome)
        if outcome.error is ErrorCode.none:
            ticket = service.groups.heartbeat_ticket(command)
            if ticket is not None:
                context.keep_ticket(command.group_id, command.member_id, ticket)
        answer(encode(outcome))

    service.groups.submit(command, reply)


def decode(body: Body, caller: Caller) -> Heartbeat:
    return Heartbeat(
        caller=caller,
        group_id=body.group_id,
        member_id=MemberId(body.member_id),
        group_instance_id=getattr(body, "group_instance_id", None),
        generation_id=body.generation_id,
    )


def encode(outcome: HeartbeatOutcome) -> Fields:
    return {"error_code": outcome.error}


@cache
def accepted(api_version: int) -> bytes:
    """Encode a response without an error, starting after the correlation id."""
    return message(KEY, api_version).write(encode(HeartbeatOutcome(error=ErrorCode.none)))


API = Api(key=KEY, name="Heartbeat", versions=range(5), handle=handle)
