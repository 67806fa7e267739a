"""Avro schemas as the makers of coders want them: every named type written out where it is used.

Nothing here knows an event; a schema is the parsed JSON of an `.avsc` file.
"""

from collections.abc import Iterator
from typing import Any

Schema = dict[str, Any]


def expanded(schema: Any, types: dict[str, Schema] | None = None) -> Any:
    """The schema with every named type written out wherever it is used."""
    types = {} if types is None else types
    if isinstance(schema, str):
        return types.get(schema, schema)
    if isinstance(schema, list):
        return [expanded(branch, types) for branch in schema]
    whole = dict(schema)
    if "name" in schema:
        types[schema["name"]] = whole
    for inner in ("items", "values"):
        if inner in schema:
            whole[inner] = expanded(schema[inner], types)
    if "fields" in schema:
        whole["fields"] = [field | {"type": expanded(field["type"], types)} for field in schema["fields"]]
    return whole


def records_in(schema: Any) -> Iterator[Schema]:
    """Every record in an expanded schema, itself included."""
    if isinstance(schema, list):
        for branch in schema:
            yield from records_in(branch)
    elif isinstance(schema, dict):
        if schema["type"] == "record":
            yield schema
        for field in schema.get("fields", ()):
            yield from records_in(field["type"])
        for inner in ("items", "values"):
            yield from records_in(schema.get(inner))
