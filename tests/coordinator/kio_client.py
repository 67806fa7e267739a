"""The client side of the wire, with kio only: encodes requests and decodes responses."""

from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from io import BytesIO
from typing import Any, get_args

from kio.index import load_request_schema, load_response_schema
from kio.serial import entity_reader, entity_writer

from muster.coordinator.group.outcomes import Superseded
from muster.coordinator.service import Cancel, Service
from muster.coordinator.wire.api import Api, KeepTicket, ProtocolError, keep_no_ticket
from muster.coordinator.wire.dispatch import ClientAddress, dispatch
from muster.coordinator.wire.in_flight import Answered
from muster.coordinator.wire.registry import APIS

PEER = ClientAddress(client_host="/10.0.0.7", principal="User:ANONYMOUS")
CLIENT_ID = "shop"
KEYS = {api.name: key for key, api in APIS.items()}
ALL_VERSIONS = [(api.name, version) for api in APIS.values() for version in api.versions]


def versions(name: str, first: int = 0) -> list[int]:
    """The supported versions of an API, starting with `first`."""
    return [version for version in APIS[KEYS[name]].versions if version >= first]


def frame(name: str, version: int, *, correlation_id: int = 7, client_id: str | None = CLIENT_ID, **body: Any) -> bytes:
    """A request without its length, written by kio. `body` may have fields that this version lacks."""
    request: Any = load_request_schema(KEYS[name], version)
    header = request.__header_schema__(
        request_api_key=KEYS[name],
        request_api_version=version,
        correlation_id=correlation_id,
        client_id=client_id,
    )
    buffer = BytesIO()
    entity_writer(type(header))(buffer, header)
    entity_writer(request)(buffer, filled(request, body))
    return buffer.getvalue()


def with_length(content: bytes) -> bytes:
    """The frame with its length."""
    return len(content).to_bytes(4, "big") + content


def parse(name: str, version: int, payload: bytes) -> Any:
    """Decode the response after the correlation id with kio, to the last byte."""
    response: Any = load_response_schema(KEYS[name], version)
    header = response.__header_schema__
    _, size = entity_reader(header)(bytes(4) + payload, 0)
    entity, body_size = entity_reader(response)(bytes(4) + payload, size)
    assert size + body_size == len(payload) + 4
    return entity


class Exchange:
    """One pending request: `answers` has the encoded responses; `response` decodes the only one with kio."""

    def __init__(
        self,
        service: Service,
        name: str,
        version: int,
        *,
        keep_ticket: KeepTicket = keep_no_ticket,
        apis: Mapping[int, Api] = APIS,
        **body: Any,
    ) -> None:
        self.name, self.version = name, version
        self.answers: list[bytes | ProtocolError] = []
        self.frame = frame(name, version, **body)
        self.cancel: Cancel | None = dispatch(
            self.frame,
            apis=apis,
            service=service,
            peer=PEER,
            answer=keep_response(self.answers),
            keep_ticket=keep_ticket,
        )

    @property
    def response(self) -> Any:
        (answered,) = self.answers
        assert not isinstance(answered, ProtocolError)
        return parse(self.name, self.version, answered)


def keep_response(answers: list[bytes | ProtocolError]) -> Callable[[Answered], None]:
    """Keep each response in one piece."""

    def keep(answered: Answered) -> None:
        assert not isinstance(answered, Superseded)
        answers.append(b"".join(answered) if isinstance(answered, list) else answered)

    return keep


def filled(entity: Any, values: Mapping[str, Any]) -> Any:
    """A kio entity from a mapping that may have more fields than its version, nested ones from mappings, too."""
    arguments = {}
    for field in fields(entity):
        if field.name in values:
            value = values[field.name]
            nested = nested_type(field.type)
            arguments[field.name] = (
                value if nested is None or value is None else tuple(filled(nested, each) for each in value)
            )
    return entity(**arguments)


def nested_type(annotation: Any) -> Any:
    """The kio class inside `tuple[X, ...]` or `tuple[X, ...] | None`; None if there is none."""
    for candidate in get_args(annotation):
        found = candidate if is_dataclass(candidate) else nested_type(candidate)
        if found is not None:
            return found
    return None
