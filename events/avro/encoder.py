"""Makes encoders: a schema becomes straight-line Python that writes the typed event directly.

This mirrors `decoder.py`, and is the simpler half, since only the newest schema of a type is written and its class has
exactly the schema's fields. fastavro's writer takes dictionaries; building those costs more than all of this.

The schema `{group_id: string, seq: long, why: {cause: string, member_id: null | string}}` becomes:

    def encode(event):
        group_id = event.group_id.encode()
        why = event.why
        latest_value, tail = latest[0]
        if why is not latest_value:
            why__cause = why.cause.encode()
            why__member_id = why.member_id
            if why__member_id is None:
                why__member_id__written = b'\\x00'
            else:
                why__member_id__text = why__member_id.encode()
                why__member_id__written = b''.join((b'\\x02', write_int(len(why__member_id__text)), ...))
            tail = b''.join((write_int(len(why__cause)), why__cause, why__member_id__written))
            latest[0] = why, tail
        return b''.join((header, write_int(len(group_id)), group_id, write_long(event.seq), tail))

All events of a transition carry the same `why` object, so its bytes are kept until an event has another one.

An encoder trusts the types of its event (mypy checks them); it raises OverflowError for a number that its reader would
not accept. Only what our schemas use is supported; anything else raises ValueError when the encoder is made.
"""

import json
from collections.abc import Callable
from typing import Any

from muster.events.avro.schema import Schema, expand
from muster.events.varints import write_int, write_long

LatestValues = dict[str, list[tuple[Any, bytes]]]
"""A cache by schema, for last fields that are records: the last value written, and its bytes."""


def compile_encoder(schema: Schema, header: bytes, latest: LatestValues) -> Callable[[Any], bytes]:
    """Return a function that encodes an event of the schema's type, with the header.

    Encoders that get the same `latest` share it. Raises ValueError if the schema uses a feature that ours do not.
    """
    source, names = encoder_source(schema, header, latest)
    exec(compile(source, f"<encoder of {schema['name']}>", "exec"), names)  # noqa: S102 - our own schemas
    encode: Callable[[Any], bytes] = names["encode"]
    return encode


def encoder_source(schema: Schema, header: bytes, latest: LatestValues) -> tuple[str, dict[str, Any]]:
    """Return the source of the encoder, and the names it needs."""
    lines = _Lines(header)
    return lines.function(expand(schema), latest), lines.names


class _Lines:
    """Writes one encoder, line by line.

    Each method adds the lines that prepare a value, and returns expressions for its bytes. `source` is an expression
    for the value, `name` a prefix for variables.
    """

    def __init__(self, header: bytes) -> None:
        self.names: dict[str, Any] = {"header": header, "write_int": write_int, "write_long": write_long}
        self._lines: list[str] = []
        self._indent = 0

    def function(self, schema: Schema, latest: LatestValues) -> str:
        self._add("def encode(event):")
        self._indent += 1
        *fields, last = schema["fields"]
        parts = ["header"]
        for field in fields:
            parts += self._value(field["type"], f"event.{field['name']}", field["name"])
        if last["type"]["type"] == "record":
            parts += self._tail(last["type"], last["name"], latest)
        else:
            parts += self._value(last["type"], f"event.{last['name']}", last["name"])
        self._add(f"return {_joined(parts)}")
        return "\n".join(self._lines) + "\n"

    def _tail(self, schema: Schema, name: str, latest: LatestValues) -> list[str]:
        """Write the last field, a record: its bytes are reused if the last event written had the same object there."""
        self.names["latest"] = latest.setdefault(json.dumps(schema), [(None, b"")])
        self._add(f"{name} = event.{name}", "latest_value, tail = latest[0]", f"if {name} is not latest_value:")
        self._indent += 1
        self._add(f"tail = {_joined(self._fields(schema, name))}", f"latest[0] = {name}, tail")
        self._indent -= 1
        return ["tail"]

    def _add(self, *lines: str) -> None:
        self._lines.extend("    " * self._indent + line for line in lines)

    def _value(self, schema: Schema, source: str, name: str) -> list[str]:
        match kind := schema["type"]:
            case "int" | "long":
                return [f"write_{kind}({source})"]
            case "boolean":
                return [f"(b'\\x01' if {source} else b'\\x00')"]
            case "enum":
                self.names[f"index_{schema['name']}"] = {s: write_int(i) for i, s in enumerate(schema["symbols"])}
                return [f"index_{schema['name']}[{source}]"]
            case "bytes":
                return [f"write_int(len({source}))", source]
            case "string":
                self._add(f"{name}__text = {source}.encode()")
                return [f"write_int(len({name}__text))", f"{name}__text"]
            case "union":
                return self._optional(schema["branches"], source, name)
            case "array" | "map":
                return self._block(schema, source, name)
            case "record":
                self._add(f"{name} = {source}")
                return self._fields(schema, name)
        raise ValueError(f"{name}: no encoder for the Avro type {kind!r}")

    def _fields(self, schema: Schema, name: str) -> list[str]:
        parts: list[str] = []
        for field in schema["fields"]:
            parts += self._value(field["type"], f"{name}.{field['name']}", f"{name}__{field['name']}")
        return parts

    def _optional(self, branches: list[Schema], source: str, name: str) -> list[str]:
        kinds = [branch["type"] for branch in branches]
        if len(kinds) != 2 or "null" not in kinds:
            raise ValueError(f"{name}: no encoder for the union {kinds}")
        null = kinds.index("null")
        self._add(f"{name} = {source}", f"if {name} is None:", f"    {name}__written = {write_int(null)!r}", "else:")
        self._indent += 1
        parts = self._value(branches[1 - null], name, name)
        self._add(f"{name}__written = {_joined([repr(write_int(1 - null)), *parts])}")
        self._indent -= 1
        return [f"{name}__written"]

    def _block(self, schema: Schema, source: str, name: str) -> list[str]:
        """Write an array or a map: all items in one counted block, then an empty block."""
        parts, item = f"{name}__parts", f"{name}__item"
        self._add(f"{name} = {source}", f"{parts} = []", f"if {name}:", f"    {parts}.append(write_int(len({name})))")
        if schema["type"] == "array":
            self._add(f"for {item} in {name}:")
            self._indent += 1
            written = self._value(schema["items"], item, item)
        else:
            self._add(f"for {name}__key, {item} in {name}.items():")
            self._indent += 1
            written = self._value({"type": "string"}, f"{name}__key", f"{name}__key")
            written += self._value(schema["values"], item, item)
        self._add(f"{parts} += ({', '.join(written)},)")
        self._indent -= 1
        self._add(f"{parts}.append(b'\\x00')")
        return [f"b''.join({parts})"]


def _joined(parts: list[str]) -> str:
    return f"b''.join(({', '.join(parts)},))"
