"""The numbers of a group's event: its incarnation and its `seq`, which stand at the beginning, behind the group's id.

What belongs here: reading these alone. All schemas of a group's events begin with the same three fields (a test holds
it), so nothing of the schema is asked for but whether it is one of a group's.
"""

from muster.events.avro.codec import HEADER_BYTES, event_type_of
from muster.events.events import Event
from muster.events.records import BrokenRecord
from muster.events.varints import read_long

FIRST_FIELDS = ("group_id", "incarnation", "seq")


def numbers_of(value: bytes) -> tuple[int, int]:
    """Read an event's incarnation and `seq`; what stands behind them is not looked into.

    Raises BrokenRecord, also for an event of a partition and for one of a type that is not known here.
    """
    kind = event_type_of(value)
    if kind is None or not issubclass(kind, Event):
        raise BrokenRecord(f"no event of a group begins with {value[:HEADER_BYTES].hex()}")
    try:
        length, pos = _long(value, HEADER_BYTES)
        if length < 0:
            raise BrokenRecord(f"a string has {length} bytes")
        incarnation, pos = _long(value, pos + length)
        return incarnation, _long(value, pos)[0]
    except IndexError as error:
        raise BrokenRecord(f"the value ends too early, after {len(value)} bytes") from error


def _long(data: bytes, pos: int) -> tuple[int, int]:
    first = data[pos]
    return ((first >> 1) ^ -(first & 1), pos + 1) if first < 128 else read_long(data, pos + 1, first)
