"""Makes decoders: each writer schema becomes straight-line Python that builds the typed event directly.

This covers Avro's binary encoding and schema resolution. The module does not know the events or the registry
(`codec.py`), and reads nothing but its arguments.

How it works: `decoder_source` walks the schema and writes one function whose only loops are those of arrays and maps;
`compile_decoder` executes it once. Schemas are resolved by name while the function is written, so resolution costs
nothing later: a field that the class does not have is skipped; a field that the writer did not have gets its default in
the newest schema of the event; a string for an enumeration becomes `UNKNOWN` if it is not a known value.

The schema `{group_id: string, seq: long, why: {cause: string, member_id: null | string}}` becomes:

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
            last_four = LAST_FOUR.get(data[pos + 1:pos + 5])
            if last_four is None or data[pos] < 128:
                seq, pos = read_long(data, pos, n)
            else:
                n += (data[pos] << 7) + last_four
                seq = (n >> 1) ^ -(n & 1)
                pos += 5
        else:
            seq = (n >> 1) ^ -(n & 1)
        known = known_0.get(None, NOTHING)
        if data.startswith(known[0], pos):
            pos, (why,) = pos + len(known[0]), known[1]
        else:
            start_0 = pos
            (n, pos, end as for group_id)
            why__cause = value_of_Cause(data[pos:end].decode(), unknown_Cause)
            pos = end
            n = data[pos]
            pos += 1
            if n == 0:
                why__member_id = None
            elif n == 2:
                (why__member_id as group_id)
            else:
                raise BrokenRecord('why.member_id: no branch of the union has the index byte %d' % n)
            why = Why(cause=why__cause, member_id=why__member_id)
            remember(known_0, None, data[start_0:pos], pos - start_0, (why,))
        if pos != len(data):
            raise BrokenRecord('the value has %d bytes, but its fields end at byte %d' % (len(data), pos))
        return GroupCreated(group_id=group_id, seq=seq, why=why)

A first byte with bit 0 or bit 7 set (`n & 129`) begins a negative or a longer number, so one test sends both to the
slow path in `varints.py`. A slice beyond the end is silently short; then `pos` is beyond the end, and either the next
index or the final comparison detects it. So a decoder raises IndexError, UnicodeDecodeError or BrokenRecord on broken
data, and `codec.py` turns all of them into BrokenRecord.

A history repeats itself: all events of a transition carry the same `why`, those of a rebalance nearly the same group,
and each event of a member describes the member. Bytes that are the same as before are not decoded again; the earlier
value is reused (`repeats.py`). That halves the work, and equal values are one object.

Only what our schemas use is supported; anything else raises ValueError when the decoder is made, never while it reads.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, get_type_hints

import msgspec
from msgspec import inspect

from muster.events.avro.repeats import NOTHING, FieldRun, Known, remember, split_into_runs
from muster.events.avro.schema import Schema, expand, records_in
from muster.events.records import BrokenRecord
from muster.events.varints import LAST_FOUR, read_block_count, read_int, read_length, read_long

HEADER_BYTES = 10
_OWN_VARIABLES = frozenset({"data", "pos", "n", "end", "known", "last_four"})


def compile_decoder(
    writer: Schema, newest: Schema, event_type: type[msgspec.Struct], known: Known
) -> Callable[[bytes], Any]:
    """Return a function that decodes a single-object encoded value, written with the writer's schema, to an event.

    `known` is the cache of repeated runs; decoders may share one. Raises ValueError if values of the schema cannot
    become events of this type.
    """
    source, names = decoder_source(writer, newest, event_type, known)
    exec(compile(source, f"<decoder of {event_type.__name__}>", "exec"), names)  # noqa: S102 - our own schemas
    decode: Callable[[bytes], Any] = names["decode"]
    return decode


def decoder_source(
    writer: Schema, newest: Schema, event_type: type[msgspec.Struct], known: Known
) -> tuple[str, dict[str, Any]]:
    """Return the source of the decoder, and the names it needs."""
    info = inspect.type_info(event_type)
    assert isinstance(info, inspect.StructType)
    lines = _Lines(newest, known)
    return lines.function(expand(writer), info), lines.names


class _Lines:
    """Writes one decoder, line by line.

    Each method adds the lines that read one value of the schema into the variable `name`. `info` is the type that it
    gets in the class; None means that it is not needed and is skipped.
    """

    def __init__(self, newest: Schema, known: Known) -> None:
        self.names: dict[str, Any] = {
            "BrokenRecord": BrokenRecord,
            "LAST_FOUR": LAST_FOUR,
            "NOTHING": NOTHING,
            "remember": remember,
            "read_block_count": read_block_count,
            "read_int": read_int,
            "read_length": read_length,
            "read_long": read_long,
        }
        self._newest = {record["name"]: record for record in records_in(expand(newest))}
        self._known = known
        self._repeating = 0  # counts the runs for which earlier values are kept
        self._lines: list[str] = []
        self._indent = 0
        self._kinds: dict[str, tuple[Callable[[Schema, Any, str], None], tuple[type[inspect.Type], ...]]] = {
            "int": (self._number, (inspect.IntType,)),
            "long": (self._number, (inspect.IntType,)),
            "boolean": (self._boolean, (inspect.BoolType,)),
            "enum": (self._enum, (inspect.EnumType,)),
            "bytes": (self._bytes, (inspect.BytesType,)),
            "string": (self._string, (inspect.StrType, inspect.EnumType)),
            "null": (self._null, (inspect.NoneType,)),
            "union": (self._union, (inspect.Type,)),
            "array": (self._array, (inspect.VarTupleType,)),
            "map": (self._map, (inspect.DictType,)),
            "record": (self._record, (inspect.StructType,)),
        }

    def function(self, schema: Schema, info: inspect.StructType) -> str:
        self._add("def decode(data):")
        self._indent += 1
        self._add(f"pos = {HEADER_BYTES}")
        self._fields(schema, info, "")
        self._add(
            "if pos != len(data):",
            "    raise BrokenRecord('the value has %d bytes, but its fields end at byte %d' % (len(data), pos))",
            f"return {self._built(schema, info, '')}",
        )
        return "\n".join(self._lines) + "\n"

    def _fields(self, schema: Schema, info: inspect.StructType | None, prefix: str) -> None:
        """Read all fields of a record into variables with the prefix."""
        wanted = {field.name: field.type for field in info.fields} if info else {}
        for run in split_into_runs(schema, wanted, is_event=not prefix):
            with self._taken_if_known(run, prefix):
                for field in run.fields:
                    self._value(field["type"], wanted.get(field["name"]), prefix + field["name"])

    @contextmanager
    def _taken_if_known(self, run: FieldRun, prefix: str) -> Iterator[None]:
        """Make the lines written in this context run only if the bytes differ from those kept for the run."""
        if not run.repeats:
            yield
            return
        known, start = f"known_{self._repeating}", f"start_{self._repeating}"
        self._repeating += 1
        self.names[known] = self._known.setdefault(run.signature, {})
        key = None if run.key is None else prefix + run.key
        values = f"({', '.join(prefix + name for name in run.wanted)}{',' * (len(run.wanted) == 1)})"
        self._add(
            f"known = {known}.get({key}, NOTHING)",
            "if data.startswith(known[0], pos):",
            f"    pos, {values} = pos + len(known[0]), known[1]",
            "else:",
        )
        self._indent += 1
        self._add(f"{start} = pos")
        yield
        self._add(f"remember({known}, {key}, data[{start}:pos], pos - {start}, {values})")
        self._indent -= 1

    def _add(self, *lines: str) -> None:
        self._lines.extend("    " * self._indent + line for line in lines)

    def _value(self, schema: Schema, info: inspect.Type | None, name: str) -> None:
        if name in _OWN_VARIABLES:
            raise ValueError(f"{name}: the decoder reserves this field name")
        kind = schema["type"]
        if kind not in self._kinds:
            raise ValueError(f"{_path(name)}: no decoder for the Avro type {kind!r}")
        if kind != "union" and isinstance(info, inspect.UnionType):
            info = inspect.NoneType() if kind == "null" else _without_none(info)
        add_lines, fitting = self._kinds[kind]
        if info is not None and not isinstance(info, fitting):
            raise ValueError(f"{_path(name)}: the Avro type {kind!r} does not fit the class, which has {info}")
        add_lines(schema, info, name)

    def _number(self, schema: Schema, info: inspect.IntType | None, name: str) -> None:
        if info is None:
            self._add("while data[pos] > 127:", "    pos += 1", "pos += 1", f"{name} = None")
            return
        self._add("n = data[pos]", "pos += 1", "if n > 127:")
        if schema["type"] == "long":  # it may be a timestamp
            self._add(
                "    last_four = LAST_FOUR.get(data[pos + 1:pos + 5])",
                "    if last_four is None or data[pos] < 128:",
                f"        {name}, pos = read_long(data, pos, n)",
                "    else:",
                "        n += (data[pos] << 7) + last_four",
                f"        {name} = (n >> 1) ^ -(n & 1)",
                "        pos += 5",
            )
        else:
            self._add(f"    {name}, pos = read_int(data, pos, n)")
        self._add("else:", f"    {name} = (n >> 1) ^ -(n & 1)")

    def _boolean(self, _schema: Schema, _info: inspect.BoolType | None, name: str) -> None:
        self._add(
            "n = data[pos]",
            "pos += 1",
            "if n > 1:",
            f"    raise BrokenRecord('{_path(name)}: no boolean is the byte %d' % n)",
            f"{name} = n == 1",
        )

    def _enum(self, schema: Schema, info: inspect.EnumType | None, name: str) -> None:
        member = info.cls if info is not None else str
        self.names[f"symbols_{schema['name']}"] = tuple(member(symbol) for symbol in schema["symbols"])
        self._add(
            "n = data[pos]",
            "pos += 1",
            f"if n & 1 or n >= {2 * len(schema['symbols'])}:",
            f"    raise BrokenRecord('{_path(name)}: no symbol has the index byte %d' % n)",
            f"{name} = symbols_{schema['name']}[n >> 1]",
        )

    def _null(self, _schema: Schema, _info: inspect.NoneType | None, name: str) -> None:
        self._add(f"{name} = None")

    def _bytes(self, _schema: Schema, info: inspect.BytesType | None, name: str) -> None:
        if info is None:
            self._passed(name)
        else:
            self._sized(name, "data[pos:end]")

    def _string(self, _schema: Schema, info: inspect.StrType | inspect.EnumType | None, name: str) -> None:
        if info is None:
            self._passed(name)
            return
        text = "data[pos:end].decode()"
        if isinstance(info, inspect.EnumType):
            cls = info.cls
            self.names[f"value_of_{cls.__name__}"] = {member.value: member for member in cls}.get
            self.names[f"unknown_{cls.__name__}"] = cls["UNKNOWN"]
            text = f"value_of_{cls.__name__}({text}, unknown_{cls.__name__})"
        self._sized(name, text)

    def _passed(self, name: str) -> None:
        """Skip a string or bytes without looking at the content."""
        self._add(
            "n = data[pos]",
            "pos += 1",
            "if n & 129:",
            "    n, pos = read_length(data, pos, n)",
            "pos += n >> 1",
            f"{name} = None",
        )

    def _sized(self, name: str, taken: str) -> None:
        self._add(
            "n = data[pos]",
            "pos += 1",
            "if n & 129:",
            "    n, pos = read_length(data, pos, n)",
            "end = pos + (n >> 1)",
            f"{name} = {taken}",
            "pos = end",
        )

    def _union(self, schema: Schema, info: inspect.Type | None, name: str) -> None:
        self._add("n = data[pos]", "pos += 1")
        for index, branch in enumerate(schema["branches"]):
            self._add(f"{'elif' if index else 'if'} n == {index * 2}:")
            self._indent += 1
            self._value(branch, info, name)
            self._indent -= 1
        self._add("else:", f"    raise BrokenRecord('{_path(name)}: no branch of the union has the index byte %d' % n)")

    def _array(self, schema: Schema, info: inspect.VarTupleType | None, name: str) -> None:
        def item() -> None:
            self._value(schema["items"], info.item_type if info else None, f"{name}__item")
            self._add(f"{name}.append({name}__item)")

        self._add(f"{name} = []")
        self._blocks(item)
        self._add(f"{name} = tuple({name})")

    def _map(self, schema: Schema, info: inspect.DictType | None, name: str) -> None:
        def entry() -> None:
            self._value({"type": "string"}, info and info.key_type, f"{name}__key")
            self._value(schema["values"], info.value_type if info else None, f"{name}__value")
            self._add(f"{name}[{name}__key] = {name}__value")

        self._add(f"{name} = {{}}")
        self._blocks(entry)

    def _blocks(self, item: Callable[[], None]) -> None:
        """Read an array or a map: blocks of items, each preceded by its count; the last is empty."""
        count = ("n = data[pos]", "pos += 1", "if n & 129:", "    n, pos = read_block_count(data, pos, n)")
        self._add(*count, "while n:")
        self._indent += 1
        self._add("for _ in range(n >> 1):")
        self._indent += 1
        item()
        self._indent -= 1
        self._add(*count)
        self._indent -= 1

    def _record(self, schema: Schema, info: inspect.StructType | None, name: str) -> None:
        self._fields(schema, info, f"{name}__")
        self._add(f"{name} = {self._built(schema, info, name + '__') if info else None}")

    def _built(self, schema: Schema, info: inspect.StructType, prefix: str) -> str:
        """Return code that builds the record from the variables with the prefix."""
        cls = info.cls
        self.names[cls.__name__] = cls
        written = {field["name"]: prefix + field["name"] for field in schema["fields"]}
        arguments = (
            f"{field.name}={written.get(field.name) or self._default(schema['name'], cls, field.name)}"
            for field in info.fields
        )
        return f"{cls.__name__}({', '.join(arguments)})"

    def _default(self, record: str, cls: type[msgspec.Struct], field: str) -> str:
        """Return a name for the default that the newest schema gives the field."""
        known = {known["name"]: known for known in self._newest.get(record, {"fields": ()})["fields"]}
        if "default" not in known.get(field, ()):
            raise ValueError(f"{record}.{field}: the writer's schema lacks it, and the newest has no default for it")
        name = f"default_{record}_{field}"
        self.names[name] = msgspec.convert(known[field]["default"], get_type_hints(cls)[field])
        return name


def _without_none(info: inspect.UnionType) -> inspect.Type:
    """Return the other type of an optional field."""
    (other,) = (kind for kind in info.types if not isinstance(kind, inspect.NoneType))
    return other


def _path(name: str) -> str:
    """Return a variable's name as the path of the field."""
    return name.replace("__", ".")
