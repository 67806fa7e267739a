"""ListGroups (key 16).

v1 adds the throttle time. v3 is flexible. v4 can ask for some states alone, and tells each group's state (KIP-518). v5
does the same with types (KIP-848); every group here is of the classic type. Filters do not look at case, nor states at
blanks around them; a name nobody knows matches nothing (LS3, LS4).
"""

from kio.schema.errors import ErrorCode

from coordinator.service import Service
from coordinator.wire.api import Answer, Api, Body, RequestContext

_TYPE = "classic"


def handle(body: Body, _context: RequestContext, service: Service, answer: Answer) -> None:
    groups = service.groups.list_groups()
    if isinstance(groups, ErrorCode):
        answer({"error_code": groups, "groups": []})
        return
    states = {state.strip().lower() for state in getattr(body, "states_filter", ())}
    types = {each.lower() for each in getattr(body, "types_filter", ())}
    answer(
        {
            "error_code": ErrorCode.none,
            "groups": [
                {
                    "group_id": group.group_id,
                    "protocol_type": group.protocol_type,
                    "group_state": group.state.value,
                    "group_type": _TYPE,
                }
                for group in groups
                if (not states or group.state.value.lower() in states) and (not types or _TYPE in types)
            ],
        }
    )


API = Api(key=16, name="ListGroups", versions=range(6), handle=handle)
