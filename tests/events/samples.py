"""One event of each type with something in every field, the same in each run."""

import typing
from typing import Any

from muster.events.avro import codec
from muster.events.causes import Cause
from muster.events.connection import ConnectionEnd
from muster.events.events import AnyRecordedEvent
from muster.events.ownership import OwnershipEndCause
from muster.events.state import HandedOutIdOutcome

_PLAIN = {
    "int": 70_000,
    "long": 1_763_725_000_123,
    "string": "größe-1",
    "bytes": bytes(range(0, 256, 2)),
    "boolean": True,
}


def full_event(event_type: type[AnyRecordedEvent]) -> Any:
    """An event with a value for each optional field, and two items in each list and map."""
    return _sample(event_type, codec.REGISTRY.newest_schema_of(event_type))


def _sample(hint: Any, schema: Any) -> Any:
    if isinstance(schema, list):
        (schema,) = (branch for branch in schema if branch != "null")
        (hint,) = (arg for arg in typing.get_args(hint) if arg is not type(None))
    if hint is Cause:
        return Cause.OVER_CAPACITY
    if hint is HandedOutIdOutcome:
        return HandedOutIdOutcome.LEFT
    if hint is OwnershipEndCause:
        return OwnershipEndCause.GONE
    if hint is ConnectionEnd:
        return ConnectionEnd.RESET
    match schema["type"] if isinstance(schema, dict) else schema:
        case "array":
            return (_sample(typing.get_args(hint)[0], schema["items"]),) * 2
        case "map":
            return dict.fromkeys(("a", "b"), _sample(typing.get_args(hint)[1], schema["values"]))
        case "record":
            hints = typing.get_type_hints(hint)
            return hint(**{f["name"]: _sample(hints[f["name"]], f["type"]) for f in schema["fields"]})
        case kind:
            return _PLAIN[kind] if kind in _PLAIN else list(hint)[-1]
