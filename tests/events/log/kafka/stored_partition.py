"""A link to the leader of one partition whose batches a test has made, without a broker."""

from collections.abc import Sequence
from typing import Any

from aiokafka.protocol.api import Response
from aiokafka.protocol.fetch import FetchRequest, FetchResponse_v11
from aiokafka.protocol.offset import OffsetRequest, OffsetResponse_v3
from aiokafka.protocol.transaction import InitProducerIdResponse_v0
from kio.schema.errors import ErrorCode

from muster.events.kafka.security import NOT_SECURED
from muster.events.log.kafka.client.link import KafkaLink, Timeouts

_EARLIEST = -2


class StoredPartition(KafkaLink):
    """The leader of a partition that holds `batches`: pairs of the offset of each one's last record, and its bytes.

    `end` is the offset after the last record; behind the last batch compaction has left a gap up to there.
    """

    def __init__(self, *batches: tuple[int, bytes], end: int, start: int = 0) -> None:
        super().__init__([], NOT_SECURED, Timeouts())
        self.end = end
        self.fetched: list[int] = []
        """The offsets that were asked for."""
        self.fetch_errors: list[ErrorCode] = []
        """The answers to the next fetches, before all is well."""
        self._batches: Sequence[tuple[int, bytes]] = batches
        self._start = start

    async def ask_leader(
        self, topic: str, partition: int, request: Any, *, lane: object, timeout_ms: int | None = None
    ) -> Response:
        if isinstance(request, OffsetRequest):
            ((_, ((_, timestamp),)),) = request._topics
            offset = self._start if timestamp == _EARLIEST else self.end
            return OffsetResponse_v3(0, [(topic, [(partition, 0, -1, offset)])])
        assert isinstance(request, FetchRequest)
        ((_, ((_, position, _),)),) = request._topics
        self.fetched.append(position)
        error = self.fetch_errors.pop(0) if self.fetch_errors else ErrorCode.none
        found = b"".join(batch for last, batch in self._batches if last >= position)
        told: tuple[Any, ...] = (partition, error.value, self.end, self.end, 0, [], -1, b"" if error.value else found)
        return FetchResponse_v11(0, 0, 0, [(topic, [told])])

    async def ask_transaction_coordinator(self, transactional_id: str, request: Any, *, prefix: str) -> Response:
        return InitProducerIdResponse_v0(0, 0, 7, 3)
