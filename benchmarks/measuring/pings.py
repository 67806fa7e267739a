"""One request at a time: how long a record of 1 KB takes to be produced, or fetched, through an address.

Plain requests on a plain socket: a relay adds a tenth of a millisecond, which the time of a full client would hide.
"""

import socket
import time
from datetime import timedelta
from typing import Any

from aiokafka.record.default_records import DefaultRecordBatchBuilder

from benchmarks.measuring.groups import Failed
from benchmarks.measuring.relaying import RECORD_BYTES, Way
from tests.coordinator.kio_client import frame, parse, with_length

LENGTH_BYTES = 4
CORRELATION_ID_BYTES = 4
PRODUCE = "Produce", 9
FETCH = "Fetch", 12
WITHIN_S = 30


def mean_ms(way: Way, request: tuple[str, int], topic: str, *, count: int) -> float:
    """The mean latency of this many requests, after as many warm-up requests. `request` is PRODUCE or FETCH."""
    name, version = request
    body = produce_of(topic) if name == "Produce" else fetch_of(topic)
    asked = with_length(frame(name, version, **body))
    host, _, port = way.bootstrap.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=WITHIN_S) as link:
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        first = answer_to(link, asked)
        _check(parse(name, version, first[CORRELATION_ID_BYTES:]), way)
        for _ in range(count):
            answer_to(link, asked)
        began = time.perf_counter()
        for _ in range(count):
            answer = answer_to(link, asked)
            if len(answer) != len(first):
                raise Failed(f"{way.name}: an answer unlike the first one: {answer[:60].hex()}")
        return (time.perf_counter() - began) / count * 1_000


def answer_to(link: socket.socket, asked: bytes) -> bytes:
    """Send a request on a connection, and return its response, from the correlation id on."""
    link.sendall(asked)
    data = link.recv(65_536)
    while len(data) < LENGTH_BYTES or len(data) < LENGTH_BYTES + int.from_bytes(data[:LENGTH_BYTES], "big"):
        more = link.recv(65_536)
        if not more:
            raise Failed("hung up on")
        data += more
    return data[LENGTH_BYTES:]


def _check(response: Any, way: Way) -> None:
    (topic,) = response.responses
    partitions = getattr(topic, "partition_responses", None) or topic.partitions
    (partition,) = partitions
    if partition.error_code or getattr(partition, "records", b"some") in (None, b""):
        raise Failed(f"{way.name}: {partition}")


def produce_of(topic: str, record_bytes: int = RECORD_BYTES) -> dict[str, Any]:
    """The body of PRODUCE: one record."""
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=0,
        is_transactional=0,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=1_048_576,
    )
    builder.append(0, int(time.time() * 1_000), None, b"x" * record_bytes, [])
    partition = {"index": 0, "records": bytes(builder.build())}
    return {
        "transactional_id": None,
        "acks": -1,
        "timeout": timedelta(seconds=WITHIN_S),
        "topic_data": [{"name": topic, "partition_data": [partition]}],
    }


def fetch_of(topic: str) -> dict[str, Any]:
    """The body of FETCH: the first batch."""
    partition = {
        "partition": 0,
        "current_leader_epoch": -1,
        "fetch_offset": 0,
        "last_fetched_epoch": -1,
        "log_start_offset": -1,
        # A limit that gives exactly one batch, since a broker always sends the first one whole.
        "partition_max_bytes": 1,
    }
    return {
        "replica_id": -1,
        "max_wait": timedelta(0),
        "min_bytes": 1,
        "max_bytes": 1_048_576,
        "isolation_level": 0,
        "session_id": 0,
        "session_epoch": -1,
        "topics": [{"topic": topic, "partitions": [partition]}],
        "forgotten_topics_data": (),
        "rack_id": "",
    }
