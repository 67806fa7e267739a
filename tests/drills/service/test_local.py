"""When the processes of a local drill have shared the partitions."""

from typing import Any

import pytest

from muster.drills.service.local import _is_shared
from muster.drills.service.process import MusterProcess


def process(*reported: dict[str, Any]) -> MusterProcess:
    """A process with these log lines."""
    made = MusterProcess("process", [], address="127.0.0.1:1")
    made._lines += [{"event": "partitions shared", "moving": 0, **line} for line in reported]
    return made


@pytest.mark.parametrize(
    ("shares", "is_shared"),
    [
        ((({"ours": [0, 1]}), ({"ours": [2, 3, 4]})), True),
        ((({"ours": [0]}), ({"ours": [1, 2, 3, 4]})), False),  # not over yet: shares become even
        ((({"ours": [0, 1], "moving": 1}), ({"ours": [2, 3, 4]})), False),
        ((({"ours": [0, 1]}), ({"ours": [2, 3]})), False),
        ((({"ours": [0, 1, 2]}), ({"ours": [2, 3, 4]})), False),
    ],
)
def test_partitions_are_shared_when_each_has_one_owner_and_none_moves(
    shares: tuple[dict[str, Any], ...], is_shared: bool
) -> None:
    assert _is_shared([process({"ours": [7]}, each) for each in shares], 5) == is_shared


def test_a_process_that_has_not_reported_has_no_share() -> None:
    assert not _is_shared([process({"ours": [0, 1, 2, 3, 4]}), process()], 5)
