"""Damage to the files of a log, drawn from a seed: as disks, full file systems and hasty copies make it."""

import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

PAGE: Final = 4_096

Damage = Callable[[random.Random, bytes], bytes]


def cut(rng: random.Random, content: bytes) -> bytes:
    """A file that ends early."""
    return content[: rng.randrange(len(content))]


def zeroed(rng: random.Random, content: bytes) -> bytes:
    """A stretch of sectors that was never written, or lost."""
    sector = 512
    first = rng.randrange(len(content) // sector)
    return _overwritten(content, first * sector, bytes(sector * rng.randint(1, 12)))


def garbled(rng: random.Random, content: bytes) -> bytes:
    """Half a page of something else."""
    return _overwritten(content, rng.randrange(len(content)), rng.randbytes(PAGE // 2))


def flipped(rng: random.Random, content: bytes) -> bytes:
    """Some bits that are not what they were."""
    damaged = bytearray(content)
    for _ in range(rng.randint(1, 8)):
        damaged[rng.randrange(len(damaged))] ^= 1 << rng.randrange(8)
    return bytes(damaged)


def swapped(rng: random.Random, content: bytes) -> bytes:
    """Two pages in each other's place."""
    pages = [content[at : at + PAGE] for at in range(0, len(content), PAGE)]
    one, other = rng.randrange(len(pages)), rng.randrange(len(pages))
    pages[one], pages[other] = pages[other], pages[one]
    return b"".join(pages)


def _overwritten(content: bytes, at: int, by: bytes) -> bytes:
    return (content[:at] + by + content[at + len(by) :])[: len(content)]


DAMAGES: Final[dict[str, Damage]] = {each.__name__: each for each in (cut, zeroed, garbled, flipped, swapped)}


UNSEEN: Final = frozenset({"flipped"})
"""Damage that may leave a valid log of something else."""


def damage(rng: random.Random, files: Sequence[Path]) -> tuple[str, str]:
    """Damage the log, or its write-ahead log; return which, and how."""
    file = rng.choice([file for file in files if file.name.endswith((".db", "-wal")) and file.stat().st_size])
    done = rng.choice(list(DAMAGES))
    file.write_bytes(DAMAGES[done](rng, file.read_bytes()))
    return file.name, done
