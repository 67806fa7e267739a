"""Describes missing parts of a history, and jumps of its clock."""

import msgspec

from muster.replay.history.items import Broken, Gap, Unreadable
from muster.replay.text.times import duration


def jump_text(jump_ms: int) -> str:
    """Describe a jump of the wall clock."""
    way = "ahead" if jump_ms > 0 else "back"
    return (
        f"the coordinator's wall clock jumped {way} by {duration(abs(jump_ms))}; times are shown as if it had not"
        " jumped"
    )


def missing_text(missing: Gap | Broken) -> str:
    """Describe what is missing, and where."""
    if isinstance(missing, Gap):
        seqs = (
            f"event {missing.first_seq} is"
            if missing.missing == 1
            else (f"events {missing.first_seq} to {missing.last_seq} are")
        )
        return f"{seqs} not in the log: compacted away, older than the log, or lost"
    if missing.more:
        first = msgspec.structs.replace(missing, more=0, last=None)
        return f"{missing_text(first)}; nor can {missing.more:,} more that follow it, up to offset {missing.end.offset}"
    where = f"partition {missing.position.partition}, offset {missing.position.offset}"
    if missing.kind is Unreadable.UNDECODABLE_KEY:
        return f"the record at {where} cannot be read, it may belong to this group: {missing.reason}"
    if missing.kind is Unreadable.COORDINATOR:
        return f"the coordinator's record at {where} cannot be read: {missing.reason}"
    if missing.kind is Unreadable.UNKNOWN_TYPE:
        return f"the event at {where} is of a type that this version does not know: {missing.reason}"
    return f"the record at {where} cannot be read: {missing.reason}"
