"""The long form: `python -m tests.frames --frames 1000000`. It prints its seed, and each frame that fails."""

import argparse
import asyncio
import sys
from random import SystemRandom

import structlog

from tests.frames import sidecar, standalone
from tests.frames.verdict import BadOutcome

ONE_IN_THE_SIDECAR = 50
"""One frame in this many goes through the sidecar: frames over sockets take much longer."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.frames", description=__doc__)
    parser.add_argument("--frames", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=SystemRandom().getrandbits(32))
    given = parser.parse_args()
    structlog.configure(logger_factory=structlog.ReturnLoggerFactory())
    sys.stdout.write(f"seed {given.seed}\n")
    through = given.frames // ONE_IN_THE_SIDECAR
    try:
        for play, frames in ((standalone.play, given.frames - through), (sidecar.play, through)):
            outcomes = asyncio.run(play(frames, given.seed, _say))
            sys.stdout.write(f"{frames} frames: {dict(outcomes.most_common())}\n")
    except BadOutcome as bad:
        sys.stdout.write(f"seed {given.seed}: {bad}\n")
        return 1
    return 0


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")


if __name__ == "__main__":
    sys.exit(main())
