"""The process that `test_crash.py` kills: it appends for ever, and prints the number of each append that was
acknowledged.

Usage: python kill_9_writer.py FILE NAME
"""

import asyncio
import sys
from pathlib import Path

from muster.events.log.sqlite.log import SqliteEventLog
from muster.events.records import Record, Transition


def numbered(name: str, number: int) -> list[Transition]:
    """One to three transitions of one to seven records, large ones among them, in the form of the contract suite."""
    transitions: list[Transition] = []
    for which in range(1 + number % 3):
        records = 1 + (number + which) % 7
        padding = b"x" * (100_000 if number % 10 == 0 else 250)
        whole = f"{name}-{number}-{which}"
        transitions.append(
            tuple(
                Record(padding + f"{whole}/{index}".encode(), f"{whole} {index} {records}".encode())
                for index in range(records)
            )
        )
    return transitions


async def main(path: Path, name: str) -> None:
    log = SqliteEventLog(path)
    await log.open()
    writer = await log.claim(0)
    number = 0
    while True:
        await writer.append(numbered(name, number))
        print(number, flush=True)
        number += 1


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2]))
