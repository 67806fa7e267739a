"""Signs of life of owners: plain records in the topic of the fencing probe, alongside the events.

That topic already exists, and owners have the necessary permissions. Nothing in it affects the state of a group, so no
fencing is needed: each sign names its owner.

A topic that an earlier version created deletes its records after an hour. Newer ones are compacted, which keeps the
last record of each owner.
"""

from typing import Final

import msgspec
from kio.schema.errors import ErrorCode

from muster.events.kafka.requests import produce, produced
from muster.events.log.base import SignOfLife
from muster.events.log.kafka.batches import Stamp, encode_batch
from muster.events.log.kafka.client.errors import refusal_error, retry
from muster.events.log.kafka.client.link import KafkaLink, PartitionLane
from muster.events.log.kafka.client.settings import CLOCK_CONFIGS, alter_command
from muster.events.log.kafka.reader import end_offset, read
from muster.events.records import Record

KEY: Final = b"sign-of-life"
LOOK_BACK_OFFSETS: Final = 500
"""The number of records that are read: 40 minutes' worth of two owners, in case one does not know that it was deposed.
"""

PROBE_CONFIGS: Final = {"cleanup.policy": "compact", "segment.ms": "3600000", **CLOCK_CONFIGS}

_NOBODY: Final = -1
_LEADER: Final = 1
"""Only the partition leader's acknowledgement is awaited: it does not matter if a sign is lost with that leader."""


async def leave(
    link: KafkaLink, topic: str, sign: SignOfLife, *, origin: bytes, timestamp_ms: int, timeout_ms: int
) -> None:
    """Append a sign of life; `link` follows the topic. Raises LogUnavailable and LogMismatch."""
    # The batch notes the offset from which owners mark; otherwise each claim of the probe's partition would search past
    # all signs.
    stamp = Stamp(
        producer_id=_NOBODY, producer_epoch=_NOBODY, epoch_base=0, origin=origin, marked_from=0, native_from=0
    )
    transition = (Record(KEY, msgspec.json.encode(sign)),)
    batch = encode_batch([transition], stamp, base_sequence=_NOBODY, timestamp_ms=timestamp_ms)

    async def attempt() -> None:
        request = produce(topic, [(0, batch)], acks=_LEADER, timeout_ms=timeout_ms)
        response = await link.ask_leader(topic, 0, request, lane=PartitionLane("sign", topic, 0))
        code, _ = produced(response)[0]
        if (error := link.settled(code, "Produce")) is not ErrorCode.none:
            raise refusal_error(f"a sign of life in topic {topic}", error, "WRITE", topic, who=link.who)

    await retry(attempt, timeout_ms=timeout_ms)


async def read_last(link: KafkaLink, topic: str, *, timeout_ms: int) -> dict[str, int]:
    """Read the owners' last signs (wall clock ms) from the latest records. Raises like `reader.read`."""
    end = await end_offset(link, topic, 0, timeout_ms=timeout_ms)
    signs: dict[str, int] = {}
    async for chunk in read(link, topic, 0, start=max(0, end - LOOK_BACK_OFFSETS), end=end, timeout_ms=timeout_ms):
        for record in chunk:
            if record.key == KEY and record.value is not None:
                signs.update(_decoded(record.value))
    return signs


def _decoded(value: bytes) -> dict[str, int]:
    """Decode the sign in a record; empty if it is foreign."""
    try:
        sign = msgspec.json.decode(value, type=SignOfLife)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return {}
    return {sign.owner: sign.wall_ms}


def warning_of(topic: str, cleanup_policy: str | None, bootstrap: str) -> str | None:
    """Return a warning about a topic that an earlier version created. `cleanup_policy`: None if unknown."""
    if cleanup_policy is None or "compact" in cleanup_policy:
        return None
    command = alter_command(topic, bootstrap, {"cleanup.policy": "compact"})
    return (
        f"topic {topic} keeps the signs of life of Muster for an hour (cleanup.policy={cleanup_policy}): if an outage"
        f" of Muster lasts longer, `muster replay` cannot say when it began; run `{command}`"
    )
