"""Requests of our own on a client's connection, and kio's messages as the bytes that a conversation takes."""

import asyncio
from collections.abc import Callable, Hashable
from functools import cache
from io import BytesIO
from typing import Any, Protocol, TypeVar, cast

from kio.serial import entity_writer
from kio.serial.errors import SerialError

from muster.coordinator.group.settings import INT32_MAX
from muster.coordinator.load.slices import Slices
from muster.coordinator.wire.api import Fault, Fields, ProtocolError
from muster.coordinator.wire.messages import HEADER_START_BYTES
from muster.events.kafka.codec.primitives import tagged_fields_size
from muster.events.kafka.codec.reading import reader_in_steps
from muster.events.kafka.codec.writing import Output, writer_in_steps
from muster.events.steps import Allowance, Steps

R = TypeVar("R")

CLIENT_ID = "muster"
"""What the broker's quotas and request logs see beside the client's principal."""


class BrokerLink(Protocol):
    """A connection on which something can be asked (see `ClientSide.ask`)."""

    @property
    def slices(self) -> Slices:
        """Whose turn it is, where an answer is long."""

    def ask(self, api_key: int, api_version: int, rest: bytes) -> asyncio.Future[bytes]: ...


class PendingRequests:
    """What one client's broker was asked, and has not answered: as much as a request asks at a time."""

    def __init__(self) -> None:
        self._open: set[asyncio.Future[bytes]] = set()

    def add(self) -> tuple[asyncio.Future[bytes], Callable[[bytes], None]]:
        """One more: the answer to come, and who is to be told it; too late he is not heard."""
        future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._open.add(future)
        future.add_done_callback(self._open.discard)

        def told(payload: bytes) -> None:
            if not future.done():
                future.set_result(payload)

        return future, told

    def cancel(self) -> None:
        """Nobody answers any more."""
        for future in tuple(self._open):
            future.cancel()


async def ask(client: BrokerLink, request: Any, response: type[R]) -> R:  # noqa: ANN401 -- any of kio's requests
    """The broker's answer to a kio request, asked on the client's connection. Raises ProtocolError."""
    payload = await client.ask(request.__api_key__, request.__version__, request_bytes(request, CLIENT_ID))
    return await client.slices.result(read_answer_in_steps(response, payload))


def request_bytes(request: Any, client_id: str | None) -> bytes:  # noqa: ANN401 -- any of kio's requests
    """All that follows the correlation id."""
    header = request.__header_schema__(
        request_api_key=request.__api_key__,
        request_api_version=request.__version__,
        correlation_id=0,
        client_id=client_id,
    )
    out = BytesIO()
    _writer(cast("Hashable", type(header)))(out, header)
    _writer(cast("Hashable", type(request)))(out, request)
    return out.getvalue()[HEADER_START_BYTES:]


def request_bytes_in_steps(request: Any, values: Fields, client_id: str | None) -> Steps[bytes]:  # noqa: ANN401 -- as above
    """The same for a request that may be long; `values` are its fields, without durations."""
    header = request.__header_schema__(
        request_api_key=request.__api_key__,
        request_api_version=request.__version__,
        correlation_id=0,
        client_id=client_id,
    )
    start = BytesIO()
    _writer(cast("Hashable", type(header)))(start, header)
    output = Output(start.getvalue()[HEADER_START_BYTES:], answer_bytes_max=INT32_MAX)
    yield from writer_in_steps(cast("Hashable", type(request)))(output, values)
    return b"".join(output.chunks())


def read_answer_in_steps(response: type[R], payload: bytes) -> Steps[R]:
    """What follows the correlation id, as kio knows it, but durations in ms; tagged fields that a newer broker adds are
    stepped over. Raises ProtocolError.
    """
    kind: Any = response
    try:
        at = tagged_fields_size(payload, 0) if kind.__header_schema__.__flexible__ else 0
        allowance = Allowance(len(payload))  # of what the broker says, its bytes are the bound
        body, _ = yield from reader_in_steps(kind)(payload, at, allowance)
    except (SerialError, ValueError) as error:
        raise ProtocolError(
            Fault.BROKER_ANSWER, f"{kind.__name__} v{kind.__version__} cannot be read: {error}"
        ) from error
    answer: R = body
    return answer


@cache
def _writer(entity: Hashable) -> Any:  # noqa: ANN401 -- kio's types say less than they are
    return entity_writer(cast("Any", entity))
