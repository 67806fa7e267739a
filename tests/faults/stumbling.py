"""A fault of aiokafka's own, as it connects."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from aiokafka.conn import AIOKafkaConnection


@contextmanager
def stumbling(fault: Exception) -> Iterator[None]:
    """Whatever connects meets it, until the block ends."""

    async def stumbles(_: AIOKafkaConnection) -> None:
        raise fault

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(AIOKafkaConnection, "connect", stumbles)
        yield
