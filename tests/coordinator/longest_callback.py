"""The longest that one callback blocked the event loop, in processor time, so a busy machine does not matter."""

import asyncio
import gc
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from muster.coordinator.garbage import collect_in_slices


class Longest:
    """The longest callback: `seconds` of the loop thread's processor time, and a description of it."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.callback = ""

    def __repr__(self) -> str:
        return f"{self.seconds * 1000:.1f} ms in {self.callback}"


@contextmanager
def longest_callback() -> Iterator[Longest]:
    """Measure the longest callback of this thread's loop while the block lasts.

    Garbage is collected as in the real process: earlier objects are frozen. Coverage is not traced here: its tracer
    triples the time.
    """
    longest = Longest()
    usual: Any = asyncio.Handle._run
    thread = threading.get_ident()

    def run(handle: asyncio.Handle) -> None:
        if threading.get_ident() != thread:  # a client's
            usual(handle)
            return
        callback = handle._callback  # type: ignore[attr-defined]  # forgotten when it is cancelled meanwhile
        began = time.thread_time()
        usual(handle)
        took = time.thread_time() - began
        if took > longest.seconds:
            longest.seconds, longest.callback = took, repr(callback)

    thresholds, tracer = gc.get_threshold(), sys.gettrace()
    sys.settrace(None)
    gc.collect()
    gc.freeze()
    collect_in_slices()
    asyncio.Handle._run = run  # type: ignore[method-assign, assignment]
    try:
        yield longest
    finally:
        asyncio.Handle._run = usual  # type: ignore[method-assign]
        gc.unfreeze()
        gc.set_threshold(*thresholds)
        sys.settrace(tracer)
