"""The program name that lines on stderr begin with: `muster replay`, or another program that uses the same commands."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

PROGRAM: ContextVar[str] = ContextVar("program", default="muster replay")


@contextmanager
def speaking_as(program: str) -> Iterator[None]:
    """In this context, lines on stderr begin with the name of this program."""
    before = PROGRAM.set(program)
    try:
        yield
    finally:
        PROGRAM.reset(before)
