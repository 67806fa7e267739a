"""ListGroups (key 16).

v1 adds the throttle time. v3 is flexible. v4 adds a filter by state, and each group's state (KIP-518). v5 adds the same
for types (KIP-848); every group here is of the classic type. Filters ignore case, and blanks around states; an unknown
name matches nothing (LS3, LS4).
"""

from kio.schema.errors import ErrorCode

from muster.coordinator.service import Cancel, ListedGroup, Service
from muster.coordinator.wire.api import Answer, Api, Body, Fields, RequestContext
from muster.events.steps import Each, Steps, collected

_TYPE = "classic"


def handle(body: Body, context: RequestContext, service: Service, answer: Answer) -> Cancel | None:
    groups = service.groups.list_groups()
    if isinstance(groups, ErrorCode):
        answer({"error_code": groups, "groups": []})
        return None
    states = {state.strip().lower() for state in getattr(body, "states_filter", ())}
    types = {each.lower() for each in getattr(body, "types_filter", ())}
    if types and _TYPE not in types:
        answer({"error_code": ErrorCode.none, "groups": ()})
        return None

    def pick() -> Steps[None]:
        picked = yield from collected(group if group.state.value.lower() in states else None for group in groups)
        answer({"error_code": ErrorCode.none, "groups": Each(_listed, picked)})

    if states:
        return context.work(pick())
    answer({"error_code": ErrorCode.none, "groups": Each(_listed, groups)})
    return None


def _listed(group: ListedGroup) -> Fields:
    return {
        "group_id": group.group_id,
        "protocol_type": group.protocol_type,
        "group_state": group.state.value,
        "group_type": _TYPE,
    }


API = Api(key=16, name="ListGroups", versions=range(6), handle=handle)
