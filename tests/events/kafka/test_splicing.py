"""Items of an array are changed or dropped; all around them stays as it is, byte by byte."""

import pytest
from kio.index import load_response_schema

from muster.events.kafka.codec.splicing import Pieces, change_items
from muster.events.steps import finished

METADATA = 3


def topic(version: int, name: bytes) -> bytes:
    """Metadata's, without partitions, with a tagged field if there may be one."""
    if version < 9:
        return bytes(2) + bytes([0, len(name)]) + name + b"\x00" + bytes(4)
    return bytes(2) + bytes([len(name) + 1]) + name + b"\x00" + b"\x01" + bytes(4) + b"\x01\x7d\x02hi"


@pytest.mark.parametrize("version", [7, 9])
def test_items_are_changed_and_dropped(version: int) -> None:
    """The first is dropped, the second gets a name as long, and the third stays."""
    is_flexible = version >= 9

    def array(*names: bytes) -> bytes:
        topics = b"".join(topic(version, name) for name in names)
        return (bytes([len(names) + 1]) if is_flexible else bytes([0, 0, 0, len(names)])) + topics

    before = bytes(4) + (b"\x01\x02c" if is_flexible else bytes(4) + b"\x00\x01c") + b"\x00\x00\x00\x07"
    behind = b"\x01\x02\x03 whatever"

    def change(pieces: Pieces) -> Pieces | None:
        if b"drop" in pieces["name"]:
            return None
        return pieces | {"name": pieces["name"].replace(b"other", b"b-new")}

    changed = change_items(load_response_schema(METADATA, version), "topics", change)
    written = finished(changed(b"in front" + before + array(b"drop", b"other", b"c") + behind, len(b"in front")))
    assert written == before + array(b"b-new", b"c") + behind
