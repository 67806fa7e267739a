"""Tunes Python's garbage collector for a fold, which creates many objects but no reference cycles."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_COLLECTED_AFTER: Final = (50_000, 20, 100)


@contextmanager
def collected_seldom() -> Iterator[None]:
    """Run the garbage collector less often: with the default thresholds it took a fifth of the time."""
    before = gc.get_threshold()
    gc.set_threshold(*_COLLECTED_AFTER)
    try:
        yield
    finally:
        gc.set_threshold(*before)
