"""Who has mistaken the port is told what he speaks; read as lengths it makes no sense to anybody."""

import pytest

from muster.coordinator.wire.mistaken import mistaken


@pytest.mark.parametrize(
    ("begins", "told"),
    [
        (b"\x16\x03\x01\x02", "the client speaks TLS, which is not served here (security.protocol)"),
        (b"GET ", "the client speaks HTTP; /healthz is at --metrics"),
        (b"\x7f\xff\xff\xff", None),
        (b"\xff\xff\xff\xff", None),
    ],
)
def test_what_is_spoken(begins: bytes, told: str | None) -> None:
    assert mistaken(int.from_bytes(begins, "big", signed=True)) == told
