"""The longest turn of the event loop, in processor time: all callbacks of the sockets that were ready."""

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class LongestTurn:
    """`seconds` of the loop thread's processor time."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __repr__(self) -> str:
        return f"{self.seconds * 1000:.1f} ms in one turn"


@contextmanager
def longest_turn() -> Iterator[LongestTurn]:
    """Measure the longest turn of this thread's loop while the block lasts, without waiting for sockets."""
    longest = LongestTurn()
    loops: Any = asyncio.BaseEventLoop
    usual, thread = loops._run_once, threading.get_ident()

    def run_once(loop: asyncio.AbstractEventLoop) -> None:
        began = time.thread_time()
        usual(loop)
        if threading.get_ident() == thread:
            longest.seconds = max(longest.seconds, time.thread_time() - began)

    loops._run_once = run_once
    try:
        yield longest
    finally:
        loops._run_once = usual
