"""A thread for calls that wait for a disk, and may wait forever.

Runs calls one after another, and reports how long the current one has been running.

The threads of asyncio's executors are joined when the interpreter exits, so a hung fsync would keep the process from
exiting. This one is a daemon: a caller of close waits as long as it likes, and the process exits regardless of the
disk.
"""

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any, TypeVar

T = TypeVar("T")
_Call = tuple["Future[Any]", Callable[[], Any]]


class DiskThread:
    """One thread, started by the first call, also after `end`. Its callers bound how many calls wait."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._calls: SimpleQueue[_Call | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._since_s: float | None = None

    def submit(self, call: Callable[[], T]) -> "asyncio.Future[T]":
        """Submit a call. If it is cancelled before it has begun, it is not run; if later, it continues and its result
        is lost.
        """
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, args=(self._calls,), name=self._name, daemon=True)
            self._thread.start()
        called: Future[T] = Future()
        self._calls.put((called, call))
        return asyncio.wrap_future(called)

    @property
    def busy_s(self) -> float:
        """How long the current call has been running; 0 if there is none. Any thread may read it."""
        since_s = self._since_s
        return 0.0 if since_s is None else time.monotonic() - since_s

    def end(self) -> None:
        """Run no call after those already submitted. Waits for nothing."""
        self._calls.put(None)
        self._calls, self._thread = SimpleQueue(), None

    def _run(self, calls: "SimpleQueue[_Call | None]") -> None:
        while (item := calls.get()) is not None:
            called, call = item
            if not called.set_running_or_notify_cancel():
                continue
            self._since_s = time.monotonic()
            try:
                result = call()
            except BaseException as error:  # noqa: BLE001 -- the caller's to handle, whatever it is
                self._since_s = None
                called.set_exception(error)
            else:
                self._since_s = None
                called.set_result(result)
