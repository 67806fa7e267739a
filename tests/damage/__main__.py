"""The long form: `python -m tests.damage --seeds 2000`. It prints each seed that fails."""

import argparse
import sys

from tests.damage.answers import BadAnswer, play


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.damage", description=__doc__)
    parser.add_argument("--seeds", type=int, default=2_000)
    parser.add_argument("--from", type=int, default=0, dest="first")
    given = parser.parse_args()
    try:
        outcomes = play(range(given.first, given.first + given.seeds))
    except BadAnswer as bad:
        sys.stdout.write(f"{bad}\n")
        return 1
    sys.stdout.write(f"{given.seeds} damaged logs: {dict(outcomes.most_common())}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
