"""The digest differs if anything in a record differs."""

import msgspec

from muster.events.records import RawRecord
from muster.replay.archive.digest import digest_of

RECORD = RawRecord(1, 2, 3, b"key", b"value", (("name", b"content"),), 7, transactional=False)
OTHERS = [
    {"partition": 9}, {"offset": 9}, {"timestamp_ms": 9}, {"key": None}, {"key": b""}, {"value": None},
    {"value": b""}, {"headers": ()}, {"headers": (("other", b"content"),)}, {"headers": (("name", None),)},
    {"headers": (("name", b""),)}, {"headers": (("name", b"content"), ("name", b"content"))},
    {"key": b"keyvalue", "value": b""},
]  # fmt: skip


def test_records_that_differ_in_any_field_have_other_digests() -> None:
    """Null is not empty; the bytes of two fields are not those of one. The digest does not depend on the batch."""
    others = [digest_of([msgspec.structs.replace(RECORD, **fields)]) for fields in OTHERS]  # type: ignore[arg-type]
    assert len({digest_of([RECORD]), *others}) == 1 + len(OTHERS)
    assert digest_of([msgspec.structs.replace(RECORD, producer_id=8, transactional=True)]) == digest_of([RECORD])
