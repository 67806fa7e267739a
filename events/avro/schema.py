"""Expands Avro schemas for code generation: one shape for all types, names replaced by their definitions.

A schema is the parsed JSON of an `.avsc` file. In its expanded form every type is a dictionary: `"string"` has become
`{"type": "string"}`, a union `{"type": "union", "branches": [...]}`, and the name of a record or an enumeration its
definition. Names are compared without their namespace, since all of ours have the same. Knows nothing of events.
"""

from collections.abc import Iterator
from typing import Any

Schema = dict[str, Any]


def expand(schema: str | list[Any] | Schema, types: dict[str, Schema] | None = None) -> Schema:
    """Return the schema in its expanded form; `types` are those defined before it."""
    types = {} if types is None else types
    if isinstance(schema, str):
        return types.get(schema, {"type": schema})
    if isinstance(schema, list):
        return {"type": "union", "branches": [expand(branch, types) for branch in schema]}
    whole = dict(schema)
    if "name" in schema:
        types[schema["name"]] = whole
    for inner in ("items", "values"):
        if inner in schema:
            whole[inner] = expand(schema[inner], types)
    if "fields" in schema:
        whole["fields"] = [field | {"type": expand(field["type"], types)} for field in schema["fields"]]
    return whole


def records_in(schema: Schema) -> Iterator[Schema]:
    """Yield every record in an expanded schema, including itself."""
    if schema["type"] == "record":
        yield schema
    for field in schema.get("fields", ()):
        yield from records_in(field["type"])
    for branch in schema.get("branches", ()):
        yield from records_in(branch)
    for inner in ("items", "values"):
        if inner in schema:
            yield from records_in(schema[inner])
