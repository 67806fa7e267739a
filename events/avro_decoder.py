"""Makes decoders: each writer schema becomes straight-line Python that builds the typed event directly.

What belongs here: Avro's binary encoding and schema resolution. This module knows no event and no registry
(`codec.py`) and reads nothing but its arguments.

How it works: `decoder_source` walks the schema and writes one function with no loop but those of arrays and maps;
`compile_decoder` executes it once. Resolution happens while writing, by name, so it costs nothing while reading: a
field that the class does not have is read past; a field that the writer did not have becomes the default it has in the
newest schema of the event; a string that stands for an enumeration becomes its `UNKNOWN` when it is not a value of it.

What the schema `{group_id: string, seq: long, why: {cause: string, member_id: null | string}}` becomes:

    def decode(data):
        pos = 10

        n = data[pos]
        pos += 1
        if n & 129:
            n, pos = read_length(data, pos, n)
        end = pos + (n >> 1)
        group_id = data[pos:end].decode()
        pos = end

        n = data[pos]
        pos += 1
        if n > 127:
            seq, pos = read_long(data, pos, n)
        else:
            seq = (n >> 1) ^ -(n & 1)

        (why__cause like group_id, with `why__cause = value_of_Cause(data[pos:end].decode(), unknown_Cause)`)

        n = data[pos]
        pos += 1
        if n == 0:
            why__member_id = None
        elif n == 2:
            (like group_id)
        else:
            raise BrokenRecord('why.member_id: no branch of the union has the index byte %d' % n)
        why = Why(cause=why__cause, member_id=why__member_id)

        if pos != len(data):
            raise BrokenRecord(...)
        return GroupCreated(group_id=group_id, seq=seq, why=why)

A first byte with bit 0 or bit 7 set (`n & 129`) is a negative or a longer number, so one test sends both to the slow
path in `varints.py`. A slice past the end is short without complaint; then `pos` is past the end, and either the next
index or the last comparison finds it. Hence a decoder raises IndexError, UnicodeDecodeError or BrokenRecord on broken
data, and `codec.py` makes one of the three.

Only what our schemas use is supported; anything else is a ValueError when the decoder is made, never while it reads.
"""

import json
from collections.abc import Callable
from typing import Any, get_type_hints

import msgspec
from msgspec import inspect

from events.avro_schema import Schema, expanded, records_in
from events.records import BrokenRecord
from events.varints import read_block_count, read_int, read_length, read_long

HEADER_BYTES = 10

LatestTails = dict[str, list[tuple[bytes | None, Any]]]
"""By the schema of a last field that is a record: its bytes in the last value read, and what they became."""


def compile_decoder(
    writer: Schema, newest: Schema, event_type: type[msgspec.Struct], latest: LatestTails
) -> Callable[[bytes], Any]:
    """A function that makes an event of a single-object encoded value written with the writer's schema.

    Decoders that are given the same `latest` share it. Raises ValueError when the schema cannot become this type.
    """
    source, names = decoder_source(writer, newest, event_type, latest)
    exec(compile(source, f"<decoder of {event_type.__name__}>", "exec"), names)  # noqa: S102 - our own schemas
    decode: Callable[[bytes], Any] = names["decode"]
    return decode


def decoder_source(
    writer: Schema, newest: Schema, event_type: type[msgspec.Struct], latest: LatestTails
) -> tuple[str, dict[str, Any]]:
    """The source of the decoder, and the names it needs."""
    info = inspect.type_info(event_type)
    assert isinstance(info, inspect.StructType)
    lines = _Lines(newest)
    return lines.function(expanded(writer), info, latest), lines.names


class _Lines:
    """Writes one decoder, line by line."""

    def __init__(self, newest: Schema) -> None:
        self.names: dict[str, Any] = {
            "BrokenRecord": BrokenRecord,
            "read_block_count": read_block_count,
            "read_int": read_int,
            "read_length": read_length,
            "read_long": read_long,
        }
        self._newest = {record["name"]: record for record in records_in(expanded(newest))}
        self._lines: list[str] = []
        self._indent = 0

    def function(self, schema: Schema, info: inspect.StructType, latest: LatestTails) -> str:
        self._add("def decode(data):")
        self._indent += 1
        self._add(f"pos = {HEADER_BYTES}")
        *fields, last = schema["fields"]
        kinds = {field.name: field.type for field in info.fields}
        for field in fields:
            self._value(field["type"], kinds.get(field["name"]), field["name"])
        if isinstance(last["type"], dict) and last["type"]["type"] == "record":
            self._tail(last["type"], kinds.get(last["name"]), last["name"], latest)
        else:
            self._value(last["type"], kinds.get(last["name"]), last["name"])
            self._end()
        self._add(f"return {self._built(schema, info, '')}")
        return "\n".join(self._lines) + "\n"

    def _tail(self, schema: Schema, info: inspect.Type | None, name: str, latest: LatestTails) -> None:
        """The last field, a record: taken over from the last value read when it has the same bytes."""
        self.names["latest"] = latest.setdefault(json.dumps(schema, sort_keys=True), [(None, None)])
        self._add("start = pos", f"tail, {name} = latest[0]", "if data[pos:] != tail:")
        self._indent += 1
        self._value(schema, info, name)
        self._end()
        self._add(f"latest[0] = data[start:], {name}")
        self._indent -= 1

    def _end(self) -> None:
        self._add(
            "if pos != len(data):",
            "    raise BrokenRecord('the value has %d bytes, but its fields end at byte %d' % (len(data), pos))",
        )

    def _add(self, *lines: str) -> None:
        self._lines.extend("    " * self._indent + line for line in lines)

    def _value(self, schema: Any, info: inspect.Type | None, name: str) -> None:
        """Lines that read one value into the variable. An info of None: nobody wants it, read past it."""
        kind = schema["type"] if isinstance(schema, dict) else "union" if isinstance(schema, list) else schema
        if kind != "union" and isinstance(info, inspect.UnionType):
            info = _without_none(info)
        if kind not in _WRITERS:
            raise ValueError(f"{_path(name)}: no decoder for the Avro type {kind!r}")
        _WRITERS[kind](self, schema, info, name)

    def _expect(self, info: inspect.Type | None, name: str, *kinds: type[inspect.Type]) -> None:
        if info is not None and not isinstance(info, kinds):
            raise ValueError(f"{_path(name)}: the schema does not fit the class, which has {info}")

    # Numbers and the like.

    def _number(self, slow: str, name: str) -> None:
        self._add(
            "n = data[pos]",
            "pos += 1",
            "if n > 127:",
            f"    {name}, pos = {slow}(data, pos, n)",
            "else:",
            f"    {name} = (n >> 1) ^ -(n & 1)",
        )

    def _int(self, _schema: Any, info: inspect.Type | None, name: str) -> None:
        self._expect(info, name, inspect.IntType)
        self._number("read_int", name)

    def _long(self, _schema: Any, info: inspect.Type | None, name: str) -> None:
        self._expect(info, name, inspect.IntType)
        self._number("read_long", name)

    def _boolean(self, _schema: Any, info: inspect.Type | None, name: str) -> None:
        self._expect(info, name, inspect.BoolType)
        self._add(
            "n = data[pos]",
            "pos += 1",
            "if n > 1:",
            f"    raise BrokenRecord('{_path(name)}: a boolean is %d' % n)",
            f"{name} = n == 1",
        )

    def _enum(self, schema: Any, info: inspect.Type | None, name: str) -> None:
        self._expect(info, name, inspect.EnumType)
        symbols = f"symbols_{schema['name']}"
        members = info.cls if isinstance(info, inspect.EnumType) else str
        self.names[symbols] = tuple(members(symbol) for symbol in schema["symbols"])
        self._add(
            "n = data[pos]",
            "pos += 1",
            f"if n & 1 or n >= {2 * len(schema['symbols'])}:",
            f"    raise BrokenRecord('{_path(name)}: no symbol has the index byte %d' % n)",
            f"{name} = {symbols}[n >> 1]",
        )

    def _index(self) -> None:
        """Lines that read a length or an index into n, doubled as it is written."""
        self._add("n = data[pos]", "pos += 1", "if n & 129:", "    n, pos = read_length(data, pos, n)")

    # Bytes and strings.

    def _bytes(self, _schema: Any, info: inspect.Type | None, name: str) -> None:
        self._expect(info, name, inspect.BytesType)
        self._index()
        self._add("end = pos + (n >> 1)", f"{name} = data[pos:end]", "pos = end")

    def _string(self, _schema: Any, info: inspect.Type | None, name: str) -> None:
        self._expect(info, name, inspect.StrType, inspect.EnumType)
        text = "data[pos:end].decode()"
        if isinstance(info, inspect.EnumType):
            cls = info.cls
            self.names[f"value_of_{cls.__name__}"] = {member.value: member for member in cls}.get
            self.names[f"unknown_{cls.__name__}"] = cls["UNKNOWN"]
            text = f"value_of_{cls.__name__}({text}, unknown_{cls.__name__})"
        self._index()
        self._add("end = pos + (n >> 1)", f"{name} = {text}", "pos = end")

    # What is made of others.

    def _null(self, _schema: Any, info: inspect.Type | None, name: str) -> None:
        self._expect(info, name, inspect.NoneType)
        self._add(f"{name} = None")

    def _union(self, branches: Any, info: inspect.Type | None, name: str) -> None:
        self._add("n = data[pos]", "pos += 1")
        for index, branch in enumerate(branches):
            wanted = info
            if isinstance(info, inspect.UnionType):
                wanted = inspect.NoneType() if branch == "null" else _without_none(info)
            self._add(f"{'elif' if index else 'if'} n == {index * 2}:")
            self._indent += 1
            self._value(branch, wanted, name)
            self._indent -= 1
        self._add("else:", f"    raise BrokenRecord('{_path(name)}: no branch of the union has the index byte %d' % n)")

    def _array(self, schema: Any, info: inspect.Type | None, name: str) -> None:
        self._expect(info, name, inspect.VarTupleType)
        wanted = info.item_type if isinstance(info, inspect.VarTupleType) else None
        self._add(f"{name} = []")

        def item() -> None:
            self._value(schema["items"], wanted, f"{name}__item")
            self._add(f"{name}.append({name}__item)")

        self._blocks(item)
        self._add(f"{name} = tuple({name})")

    def _map(self, schema: Any, info: inspect.Type | None, name: str) -> None:
        self._expect(info, name, inspect.DictType)
        value = info.value_type if isinstance(info, inspect.DictType) else None
        self._add(f"{name} = {{}}")

        def entry() -> None:
            self._value("string", None, f"{name}__key")
            self._value(schema["values"], value, f"{name}__value")
            self._add(f"{name}[{name}__key] = {name}__value")

        self._blocks(entry)

    def _blocks(self, item: Callable[[], object]) -> None:
        """Lines around those of one item of an array or a map, which come in counted blocks; the last is empty."""
        self._block_count()
        self._add("while n:")
        self._indent += 1
        self._add("for _ in range(n >> 1):")
        self._indent += 1
        item()
        self._indent -= 1
        self._block_count()
        self._indent -= 1

    def _block_count(self) -> None:
        self._add("n = data[pos]", "pos += 1", "if n & 129:", "    n, pos = read_block_count(data, pos, n)")

    def _record(self, schema: Any, info: inspect.Type | None, name: str) -> None:
        self._expect(info, name, inspect.StructType)
        kinds = {field.name: field.type for field in info.fields} if isinstance(info, inspect.StructType) else {}
        for field in schema["fields"]:
            self._value(field["type"], kinds.get(field["name"]), f"{name}__{field['name']}")
        if isinstance(info, inspect.StructType):
            self._add(f"{name} = {self._built(schema, info, name + '__')}")

    def _built(self, schema: Schema, info: inspect.StructType, prefix: str) -> str:
        """What builds the record of the variables with the prefix."""
        cls = info.cls
        self.names[cls.__name__] = cls
        written = {field["name"]: prefix + field["name"] for field in schema["fields"]}
        arguments = (
            f"{field.name}={written.get(field.name) or self._default(schema['name'], cls, field.name)}"
            for field in info.fields
        )
        return f"{cls.__name__}({', '.join(arguments)})"

    def _default(self, record: str, cls: type, field: str) -> str:
        """A name for the default that the newest schema gives the field."""
        fields = {field["name"]: field for field in self._newest[record]["fields"]} if record in self._newest else {}
        if "default" not in fields.get(field, ()):
            raise ValueError(f"{record}.{field}: the writer's schema lacks it, and the newest has no default for it")
        name = f"default_{record}_{field}"
        self.names[name] = msgspec.convert(fields[field]["default"], get_type_hints(cls)[field])
        return name


_WRITERS: dict[str, Callable[[_Lines, Any, inspect.Type | None, str], None]] = {
    "array": _Lines._array,
    "boolean": _Lines._boolean,
    "bytes": _Lines._bytes,
    "enum": _Lines._enum,
    "int": _Lines._int,
    "long": _Lines._long,
    "map": _Lines._map,
    "null": _Lines._null,
    "record": _Lines._record,
    "string": _Lines._string,
    "union": _Lines._union,
}


def _without_none(info: inspect.UnionType) -> inspect.Type:
    """The one other type of an optional field."""
    (other,) = (kind for kind in info.types if not isinstance(kind, inspect.NoneType))
    return other


def _path(name: str) -> str:
    """A variable's name as people know the field."""
    return name.replace("__", ".")
