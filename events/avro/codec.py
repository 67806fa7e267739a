"""Events as bytes: the registry of schemas, `encode` and `decode`, and the records of a transition.

It maps fingerprints to schemas and schemas to event classes. `decoder.py` and `encoder.py` read and write the bodies;
`keys.py` encodes the keys.

A value is Avro's single-object encoding: the marker C3 01, the schema's CRC-64-AVRO fingerprint (8 bytes, little
endian), the body. There is one schema per event type, so the first ten bytes identify the type. Events are written with
the newest schema of their type at the log's format level; every older schema stays readable.

Decoding is strict: a value is either read completely or raises `BrokenRecord` (`UnknownEventType` if just its schema is
unknown here), whatever its bytes are.
"""

from collections.abc import Callable, Iterable, Mapping

from fastavro.schema import parse_schema, to_parsing_canonical_form

from muster import schemas
from muster.events.avro.decoder import compile_decoder
from muster.events.avro.encoder import LatestValues, compile_encoder
from muster.events.avro.partial import PartialEvent, PartialGroupEvent
from muster.events.avro.repeats import Known
from muster.events.events import (
    EVENT_TYPES,
    AnyRecordedEvent,
    Event,
    GroupConfigured,
    GroupDeleted,
    GroupEvent,
    MemberRemoved,
    RegistrationEnded,
)
from muster.events.keys import encode_key, key_of
from muster.events.records import BrokenRecord, Record, UnknownEventType
from muster.events.state import NOT_CONFIGURED
from muster.events.varints import read_long_at

MARKER = b"\xc3\x01"
HEADER_BYTES = 10

Decoder = Callable[[bytes], AnyRecordedEvent]
Encoder = Callable[[AnyRecordedEvent], bytes]


_EMPTY = 0xC15D213AA4D7A795
"""CRC-64-AVRO of no bytes, which is also its polynomial."""


def _shifted(fingerprint: int) -> int:
    for _ in range(8):
        fingerprint = (fingerprint >> 1) ^ (_EMPTY if fingerprint & 1 else 0)
    return fingerprint


_SHIFTED = [_shifted(byte) for byte in range(256)]


def header_of(schema: schemas.Schema) -> bytes:
    """Return the ten bytes before every value written with the schema.

    fastavro's `fingerprint` builds the byte table again for each schema, which would add 35 ms to each start.
    """
    fingerprint = _EMPTY
    for byte in to_parsing_canonical_form(parse_schema(schema)).encode():
        fingerprint = (fingerprint >> 8) ^ _SHIFTED[(fingerprint ^ byte) & 0xFF]
    return MARKER + fingerprint.to_bytes(HEADER_BYTES - len(MARKER), "little")


class Registry:
    """Schemas by fingerprint, and the decoders and encoders made from them, each at its first use.

    Takes the schemas of each format level. Raises ValueError if two have the same fingerprint, or if a schema has no
    event type.
    """

    def __init__(self, known: Mapping[int, Iterable[schemas.Schema]]) -> None:
        types = {event_type.__name__: event_type for event_type in EVENT_TYPES}
        self._schemas: dict[bytes, schemas.Schema] = {}
        self._levels: dict[bytes, int] = {}
        self._newest: dict[type[AnyRecordedEvent], bytes] = {}
        self._newest_at: dict[int, dict[type[AnyRecordedEvent], bytes]] = {}
        """The headers of the newest schemas, by the level that introduced something new."""
        for level in sorted(known):
            for schema in known[level]:
                header = header_of(schema)
                if header in self._schemas:
                    other = self._schemas[header]["name"]
                    raise ValueError(f"the schemas {other} and {schema['name']} have the same fingerprint")
                if schema["name"] not in types:
                    raise ValueError(f"the schema {schema['name']} belongs to no event type")
                self._schemas[header] = schema
                self._levels[header] = level
                self._newest[types[schema["name"]]] = header
            self._newest_at[level] = self._newest.copy()
        self._types = {header: types[schema["name"]] for header, schema in self._schemas.items()}
        self._decoders: dict[bytes, Decoder] = {}
        self._known: Known = {}
        self._partial_decoders: dict[bytes, Callable[[bytes], PartialEvent | PartialGroupEvent]] = {}
        self._known_of_partial_events: Known = {}
        self._latest_values: LatestValues = {}
        self._encoders: dict[int, dict[type[AnyRecordedEvent], Encoder]] = {}

    def event_type_of(self, value: bytes) -> type[AnyRecordedEvent] | None:
        """Return the type given by the value's first ten bytes, None if it is unknown here."""
        return self._types.get(value[:HEADER_BYTES])

    def newest_schema_of(self, event_type: type[AnyRecordedEvent]) -> schemas.Schema:
        """Return the schema with which events of the type are written at the highest level."""
        return self._schemas[self._newest[event_type]]

    def level_of(self, value: bytes) -> int:
        """Return the format level of the schema that the value was written with, which must be known here."""
        return self._levels[value[:HEADER_BYTES]]

    def decode(self, value: bytes) -> AnyRecordedEvent:
        """Decode the event in the value. Raises BrokenRecord, and its UnknownEventType."""
        decoder = self._decoders.get(value[:HEADER_BYTES]) or self._new_decoder(value)
        try:
            return decoder(value)
        except (IndexError, UnicodeDecodeError) as error:
            raise _as_broken(error, value) from error

    def decode_partially(self, value: bytes) -> PartialEvent | PartialGroupEvent:
        """Decode some fields of a group's event: those of `PartialGroupEvent` if it is on the group's own key.

        The content of other fields is not checked. Raises BrokenRecord, also for an event of a partition, and
        UnknownEventType.
        """
        decoder = self._partial_decoders.get(value[:HEADER_BYTES]) or self._new_partial_decoder(value)
        try:
            return decoder(value)
        except (IndexError, UnicodeDecodeError) as error:
            raise _as_broken(error, value) from error

    def encode(self, event: AnyRecordedEvent, format_level: int) -> bytes:
        """Encode the event with the newest schema of its type up to the level.

        Fields that this schema lacks are left out. Raises ValueError for a type that the level does not have.
        """
        of_level = self._encoders.get(format_level, {})
        encoder = of_level.get(type(event)) or self._new_encoder(type(event), format_level)
        return encoder(event)

    def _known_type(self, header: bytes) -> type[AnyRecordedEvent]:
        event_type = self._types.get(header)
        if event_type is None:
            if len(header) < HEADER_BYTES or not header.startswith(MARKER):
                raise BrokenRecord(f"the value does not begin with Avro's marker and a fingerprint: {header.hex()}")
            raise UnknownEventType(f"no schema with the fingerprint {header[len(MARKER) :].hex()} is known here")
        return event_type

    def _new_partial_decoder(self, value: bytes) -> Callable[[bytes], PartialEvent | PartialGroupEvent]:
        header = value[:HEADER_BYTES]
        event_type = self._known_type(header)
        if not issubclass(event_type, Event):
            raise BrokenRecord(f"{event_type.__name__} is not an event of a group")
        partial = PartialGroupEvent if issubclass(event_type, GroupEvent) else PartialEvent
        newest = self.newest_schema_of(event_type)
        decoder = self._partial_decoders[header] = compile_decoder(
            self._schemas[header], newest, partial, self._known_of_partial_events
        )
        return decoder

    def _new_decoder(self, value: bytes) -> Decoder:
        header = value[:HEADER_BYTES]
        event_type = self._known_type(header)
        newest = self.newest_schema_of(event_type)
        decoder = self._decoders[header] = compile_decoder(self._schemas[header], newest, event_type, self._known)
        return decoder

    def _new_encoder(self, event_type: type[AnyRecordedEvent], format_level: int) -> Encoder:
        newest = self._newest_at[max((level for level in self._newest_at if level <= format_level), default=0)]
        if event_type not in newest:
            raise ValueError(f"{event_type.__name__} cannot be written in a log of format level {format_level}")
        header = newest[event_type]
        encoder = compile_encoder(self._schemas[header], header, self._latest_values)
        self._encoders.setdefault(format_level, {})[event_type] = encoder
        return encoder


def _as_broken(error: IndexError | UnicodeDecodeError, value: bytes) -> BrokenRecord:
    if isinstance(error, IndexError):
        return BrokenRecord(f"the value ends too early, after {len(value)} bytes")
    return BrokenRecord(f"a string in the value is not UTF-8: {error}")


REGISTRY = Registry({level: schemas.event_schemas(level) for level in schemas.levels()})

encode = REGISTRY.encode
decode = REGISTRY.decode
level_of = REGISTRY.level_of
decode_partially = REGISTRY.decode_partially
event_type_of = REGISTRY.event_type_of


def decode_numbers(value: bytes) -> tuple[int, int]:
    """Read the incarnation and `seq` of a group's event and nothing after them: half the work of `decode`.

    Raises BrokenRecord, also for an event of a partition and for an unknown type.
    """
    event_type = event_type_of(value)
    if event_type is None or not issubclass(event_type, Event):
        raise BrokenRecord(f"no event of a group begins with {value[:HEADER_BYTES].hex()}")
    try:
        length, pos = read_long_at(value, HEADER_BYTES)
        if length < 0:
            raise BrokenRecord(f"a string has {length} bytes")
        incarnation, pos = read_long_at(value, pos + length)
        return incarnation, read_long_at(value, pos)[0]
    except IndexError as error:
        raise _as_broken(error, value) from error


def records_of(events: Iterable[AnyRecordedEvent], format_level: int) -> tuple[Record, ...]:
    """Return the records of a transition, for a log of that format level.

    Each event is one record; the last event of an entity is followed by the tombstone of its key.
    """
    records = []
    for event in events:
        key = encode_key(key_of(event))
        records.append(Record(key, encode(event, format_level)))
        if _is_last(event):
            records.append(Record(key, None))
    return tuple(records)


def _is_last(event: AnyRecordedEvent) -> bool:
    """Return whether nothing is left of the entity after this event."""
    if isinstance(event, GroupConfigured):
        return event.config == NOT_CONFIGURED
    return isinstance(event, MemberRemoved | GroupDeleted | RegistrationEnded)
