"""DeleteGroups (key 42). v2 is flexible. A group named twice is deleted, and answered, once (G12)."""

from collections.abc import Sequence

from kio.schema.errors import ErrorCode

from muster.coordinator.group.commands import DeleteGroup
from muster.coordinator.group.outcomes import DeleteGroupOutcome, Outcome
from muster.coordinator.service import Cancel, ReplyTo, Service
from muster.coordinator.wire.api import Answer, Api, Body, Fields, RequestContext
from muster.coordinator.wire.gather import Gather
from muster.events.steps import Each, Steps, entries_of


def handle(body: Body, context: RequestContext, service: Service, answer: Answer) -> Cancel | None:
    group_ids = list(dict.fromkeys(body.groups_names))

    def respond(errors: Sequence[ErrorCode]) -> None:
        def result(place: int) -> Fields:
            return {"group_id": group_ids[place], "error_code": errors[place]}

        answer({"results": Each(result, range(len(group_ids)))})

    gathered = Gather[ErrorCode](len(group_ids), respond)

    def reply_to(place: int) -> ReplyTo:
        def reply(outcome: Outcome) -> None:
            assert isinstance(outcome, DeleteGroupOutcome)
            gathered.put(place, outcome.error)

        return reply

    def submit() -> Steps[None]:
        for place, group_id in enumerate(group_ids):
            command = DeleteGroup(caller=context.caller(service), group_id=group_id)
            service.groups.submit(command, reply_to(place))
            yield entries_of(group_id)

    return context.work(submit())


API = Api(key=42, name="DeleteGroups", versions=range(3), handle=handle)
