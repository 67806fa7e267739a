"""Muster's own requests on a client's connection, and the encoding of kio's messages."""

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
"""The client id of these requests, for the broker's quotas and request logs."""


class BrokerLink(Protocol):
    """A connection on which requests can be sent to the broker (see `ClientSide.ask`)."""

    @property
    def slices(self) -> Slices:
        """The slices in which long responses are read."""

    def ask(self, api_key: int, api_version: int, rest: bytes) -> asyncio.Future[bytes]: ...


class PendingRequests:
    """Requests of ours that the broker of one client has not answered."""

    def __init__(self) -> None:
        self._open: set[asyncio.Future[bytes]] = set()

    def add(self) -> tuple[asyncio.Future[bytes], Callable[[bytes], None]]:
        """Add a request; return the future of its response, and the callback that sets it."""
        future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._open.add(future)
        future.add_done_callback(self._open.discard)

        def answered(payload: bytes) -> None:
            if not future.done():
                future.set_result(payload)

        return future, answered

    def cancel(self) -> None:
        """Cancel all: no response will arrive."""
        for future in tuple(self._open):
            future.cancel()


async def ask(client: BrokerLink, request: Any, response: type[R]) -> R:  # noqa: ANN401 -- any of kio's requests
    """Send a kio request on the client's connection and return the response. Raises ProtocolError."""
    payload = await client.ask(request.__api_key__, request.__version__, request_bytes(request, CLIENT_ID))
    return await client.slices.result(read_answer_in_steps(response, payload))


def request_bytes(request: Any, client_id: str | None) -> bytes:  # noqa: ANN401 -- any of kio's requests
    """Return the request's bytes after the correlation id."""
    out = _header(request, client_id)
    _writer(cast("Hashable", type(request)))(out, request)
    return out.getvalue()[HEADER_START_BYTES:]


def request_bytes_in_steps(request: Any, values: Fields, client_id: str | None) -> Steps[bytes]:  # noqa: ANN401 -- as above
    """Like `request_bytes`, for a request that may be long; `values` are its fields, without durations."""
    start = _header(request, client_id).getvalue()[HEADER_START_BYTES:]
    output = Output(start, answer_bytes_max=INT32_MAX)
    yield from writer_in_steps(cast("Hashable", type(request)))(output, values)
    return b"".join(output.chunks())


def _header(request: Any, client_id: str | None) -> BytesIO:  # noqa: ANN401 -- any of kio's requests
    header = request.__header_schema__(
        request_api_key=request.__api_key__,
        request_api_version=request.__version__,
        correlation_id=0,
        client_id=client_id,
    )
    out = BytesIO()
    _writer(cast("Hashable", type(header)))(out, header)
    return out


def read_answer_in_steps(response: type[R], payload: bytes) -> Steps[R]:
    """Decode a response, from its bytes after the correlation id, into kio's class; durations stay in ms.

    Skips tagged fields that a newer broker adds. Raises ProtocolError.
    """
    kind: Any = response
    try:
        at = tagged_fields_size(payload, 0) if kind.__header_schema__.__flexible__ else 0
        allowance = Allowance(len(payload))  # the broker is trusted: a response has fewer entries than bytes
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
