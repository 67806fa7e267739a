"""A link to the leader of one partition with batches made by a test, without a broker."""

from collections.abc import Sequence
from typing import Any

from kio.schema.errors import ErrorCode

from muster.events.kafka.security import NOT_SECURED
from muster.events.log.kafka.client.link import KafkaLink, Timeouts
from tests.events.log.kafka.kafka_messages import (
    LIST_OFFSETS,
    fetch_response,
    offset_response,
    place_of,
    producer_id_response,
    request_in,
    timestamp_of,
)

_EARLIEST = -2


class StoredPartition(KafkaLink):
    """The leader of a partition with these `batches`: pairs of the offset of each one's last record, and its bytes.
    `end` is the offset after the last record; compaction has left a gap between the last batch and it.
    """

    def __init__(self, *batches: tuple[int, bytes], end: int, start: int = 0) -> None:
        super().__init__([], NOT_SECURED, Timeouts())
        self.end = end
        self.fetched: list[int] = []
        """The requested offsets."""
        self.fetch_errors: list[ErrorCode] = []
        """The errors of the next fetches, before they succeed."""
        self._batches: Sequence[tuple[int, bytes]] = batches
        self._start = start

    async def ask_leader(
        self, topic: str, partition: int, request: Any, *, lane: object, timeout_ms: int | None = None
    ) -> Any:
        requested = request_in(request)
        if requested.__api_key__ == LIST_OFFSETS:
            offset = self._start if timestamp_of(requested) == _EARLIEST else self.end
            return offset_response(topic, partition, offset)
        position, _ = place_of(requested)
        self.fetched.append(position)
        error = self.fetch_errors.pop(0) if self.fetch_errors else ErrorCode.none
        found = b"".join(batch for last, batch in self._batches if last >= position)
        return fetch_response(topic, partition, self.end, b"" if error.value else found, error)

    async def ask_transaction_coordinator(self, transactional_id: str, request: Any, *, prefix: str) -> Any:
        return producer_id_response(7, 3)
