"""Each version that ApiVersions offers is answered, over a socket."""

import asyncio
from dataclasses import MISSING, fields, is_dataclass
from datetime import timedelta
from typing import Any, get_args, get_origin
from uuid import UUID

import pytest
from kio.index import load_request_schema
from kio.schema.errors import ErrorCode

from muster.coordinator.wire.api import Fault
from muster.coordinator.wire.registry import APIS
from tests.coordinator.kio_client import parse
from tests.coordinator.running_server import Client, running
from tests.coordinator.serving import serving

API_VERSIONS = 18
PRODUCE = 0
SOFTWARE = {"client_software_name": "kio", "client_software_version": "0.6.5"}
NOT_BLANK: dict[int, dict[str, Any]] = {API_VERSIONS: SOFTWARE, PRODUCE: {"acks": 1}}
OFFERED = [(key, version) for key, api in APIS.items() for version in api.versions]
BESIDE = [(key, version) for key, api in APIS.items() for version in (api.versions[0] - 1, api.versions[-1] + 1)]


def blank(api_key: int, version: int) -> dict[str, Any]:
    """The fields of the smallest request: empty names and arrays, and zeros."""
    request: Any = load_request_schema(api_key, version)
    return {field.name: zero(field.type) for field in fields(request) if field.default is MISSING}


def zero(annotation: Any) -> Any:
    candidates = [each for each in get_args(annotation) or (annotation,) if each is not type(None)]
    kind = annotation if get_origin(annotation) is tuple else candidates[0]
    if get_origin(kind) is tuple:
        return ()
    assert not is_dataclass(kind)
    base = next(each for each in (bool, int, str, bytes, timedelta, UUID, float) if issubclass(kind, each))
    return UUID(int=0) if base is UUID else base()


async def offered_by(client: Client) -> dict[int, range]:
    client.send("ApiVersions", 4, 1, **SOFTWARE)
    answer = parse("ApiVersions", 4, (await client.answer())[1])
    assert answer.error_code is ErrorCode.none
    return {each.api_key: range(each.min_version, each.max_version + 1) for each in answer.api_keys}


async def test_a_server_offers_what_is_registered_and_nothing_else() -> None:
    """With the runtime behind it, as clients see it."""
    async with serving() as muster:
        client = Client(*await asyncio.open_connection("127.0.0.1", muster.server.port))
        assert await offered_by(client) == {key: api.versions for key, api in APIS.items()}


@pytest.mark.parametrize(("api_key", "version"), OFFERED, ids=str)
async def test_each_version_that_is_offered_is_answered(api_key: int, version: int) -> None:
    """With a response of exactly that version, by a server with a real runtime; no version is offered that cannot be
    decoded.
    """
    name = APIS[api_key].name
    body = blank(api_key, version) | NOT_BLANK.get(api_key, {})
    async with serving() as muster:
        client = Client(*await asyncio.open_connection("127.0.0.1", muster.server.port))
        assert version in (await offered_by(client))[api_key]
        client.send(name, version, 7, **body)
        correlation_id, payload = await client.answer()
        assert correlation_id == 7
        parse(name, version, payload)
        assert not any(muster.metrics.protocol_errors.values())


@pytest.mark.parametrize(("api_key", "version"), BESIDE, ids=str)
async def test_no_version_beside_those_is_answered(api_key: int, version: int) -> None:
    """Kafka disconnects; only ApiVersions lists the offered versions (KIP-511)."""
    async with running() as subject:
        client = await subject.connect()
        start = api_key.to_bytes(2, "big") + version.to_bytes(2, "big", signed=True) + b"\x00\x00\x00\x07\x00\x00"
        content = start + bytes(64)
        client.writer.write(len(content).to_bytes(4, "big") + content)
        if api_key == API_VERSIONS:
            answer = parse("ApiVersions", 0, (await client.answer())[1])
            (entry,) = answer.api_keys
            assert (answer.error_code, entry.max_version) == (ErrorCode.unsupported_version, APIS[18].versions[-1])
        else:
            assert await client.is_closed()
            assert subject.metrics.protocol_errors == {Fault.UNSUPPORTED_VERSION: 1}
        assert subject.groups.commands == []
