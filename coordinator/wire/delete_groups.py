"""DeleteGroups (key 42). v2 is flexible. A group named twice is deleted, and answered, once (G12)."""

from coordinator.group.commands import DeleteGroup
from coordinator.group.outcomes import DeleteGroupOutcome, Outcome
from coordinator.service import ReplyTo, Service
from coordinator.wire.api import Answer, Api, Body, Fields, RequestContext
from coordinator.wire.gather import Gather
from events.ids import GroupId


def handle(body: Body, context: RequestContext, service: Service, answer: Answer) -> None:
    group_ids = list(dict.fromkeys(body.groups_names))
    gathered = Gather[Fields](len(group_ids), lambda results: answer({"results": results}))

    def reply_to(place: int, group_id: GroupId) -> ReplyTo:
        def reply(outcome: Outcome) -> None:
            assert isinstance(outcome, DeleteGroupOutcome)
            gathered.put(place, {"group_id": group_id, "error_code": outcome.error})

        return reply

    for place, group_id in enumerate(group_ids):
        command = DeleteGroup(caller=context.caller(service), group_id=group_id)
        service.groups.submit(command, reply_to(place, group_id))


API = Api(key=42, name="DeleteGroups", versions=range(3), handle=handle)
