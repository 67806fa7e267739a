"""The contract suite of event logs, inherited by the tests of each implementation.

    class TestMemoryEventLog(EventLogContract):
        @pytest.fixture
        def storage(self) -> MemoryLogStorage: ...

An implementation brings its `LogStorage` (storage.py). Each test has its own storage, with two partitions or
more. The tests themselves are in `contract_reading.py` and `contract_writing.py`; this module has their fixtures.
"""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest

from muster.events.log.base import EventLog, LogWriter
from tests.events.log.contract_reading import ReadingContract
from tests.events.log.contract_writing import WritingContract
from tests.events.log.storage import BATCH_BYTES_MAX, LogStorage, OpenLog


class EventLogContract(ReadingContract, WritingContract):
    """The suite. Inherit it, and give it a `storage`."""

    @pytest.fixture
    def storage(self) -> LogStorage:
        raise NotImplementedError("an implementation brings its storage")

    @pytest.fixture
    async def open_log(self, storage: LogStorage) -> AsyncIterator[OpenLog]:
        async with AsyncExitStack() as opened:

            async def open_one(*, read_only: bool = False, batch_bytes_max: int = BATCH_BYTES_MAX) -> EventLog:
                log = storage.make_log(read_only=read_only, batch_bytes_max=batch_bytes_max)
                await log.open()
                opened.push_async_callback(log.close)
                return log

            yield open_one

    @pytest.fixture
    async def log(self, open_log: OpenLog) -> EventLog:
        return await open_log()

    @pytest.fixture
    async def writer(self, log: EventLog) -> LogWriter:
        return await log.claim(0)
