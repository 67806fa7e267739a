"""Python's garbage collector in a fold: it makes many objects, and none that refer to each other."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_COLLECTED_AFTER: Final = (50_000, 20, 100)


@contextmanager
def collected_seldom() -> Iterator[None]:
    """Have the garbage collector look at what lives less often: at its usual pace it took a fifth of the time."""
    before = gc.get_threshold()
    gc.set_threshold(*_COLLECTED_AFTER)
    try:
        yield
    finally:
        gc.set_threshold(*before)
