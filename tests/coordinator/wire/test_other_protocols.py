"""TLS and HTTP on this port are recognized and named; as lengths they would make no sense."""

import pytest

from muster.coordinator.net.frames import oversized_frame
from muster.coordinator.wire.api import Fault


@pytest.mark.parametrize(
    ("begins", "fault", "told"),
    [
        (
            b"\x16\x03\x01\x02",
            Fault.OTHER_PROTOCOL,
            "the client speaks TLS, which is not served here (security.protocol)",
        ),
        (b"GET ", Fault.OTHER_PROTOCOL, "the client speaks HTTP; /healthz is at --metrics"),
        (
            b"\x7f\xff\xff\xff",
            Fault.OVERSIZED_FRAME,
            "a request announces 2147483647 bytes; the limit is 100",
        ),
    ],
)
def test_supported_mechanisms(begins: bytes, fault: Fault, told: str) -> None:
    error = oversized_frame(int.from_bytes(begins, "big"), 100)
    assert (error.fault, str(error)) == (fault, told)
