"""Some ten thousand frames in every run, from a seed that is printed when they fail; `make frames` plays a million."""

import os
from collections.abc import Awaitable, Callable
from random import SystemRandom
from typing import Any

import pytest

from muster.coordinator.wire.registry import APIS
from tests.frames import sidecar, standalone
from tests.frames.generator import Frames

SEED = int(os.environ.get("MUSTER_TEST_SEED", SystemRandom().getrandbits(32)))
"""`MUSTER_TEST_SEED` plays a run again."""


@pytest.mark.parametrize(
    ("play", "frames", "faults"),
    [
        (standalone.play, 10_000, ("malformed-request", "too-many-entries")),
        (sidecar.play, 1_000, ("malformed-request",)),  # too few to be sure of one with too many entries
    ],
)
async def test_every_frame_is_answered_or_refused_and_leaves_nothing(
    play: Callable[[int, int, Callable[[str], None]], Awaitable[Any]], frames: int, faults: tuple[str, ...]
) -> None:
    print(f"MUSTER_TEST_SEED={SEED}")
    outcomes = await play(frames, SEED, lambda _: None)
    assert outcomes["answered"] > frames / 20
    assert outcomes["malformed-request"] > frames / 20
    assert all(outcomes[fault] for fault in faults)


def test_a_seed_gives_the_same_frames() -> None:
    first, second = (Frames(APIS.values(), 7) for _ in range(2))
    assert [first.next() for _ in range(50)] == [second.next() for _ in range(50)]
