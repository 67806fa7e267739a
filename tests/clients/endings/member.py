"""The program of the families in Python: `python -m tests.clients.endings.member FAMILY name=value ...`.

It polls, like an application, and between two polls executes a line of its standard input:

    commit          commit offset 1 of each partition that it has
    stall SECONDS   do not poll for this long; an event loop keeps running
    block SECONDS   block the only thread for so long (Python only)
    unsubscribe     subscribe: the topic of its settings
    close           close the consumer, and keep running
    raise           end by an uncaught exception, without closing

At the end of its input it exits at once, so that it never outlives the experiment. The Java and Go programs accept
the same lines (`tests/clients/foreign/`).
"""

import os
import queue
import signal
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Final

import msgspec

from tests.clients.endings.given import ClientSettings
from tests.judge.real.families import PROCESSES, ProcessConsumer
from tests.judge.real.given import Family, Given

INPUT_ENDED: Final = 3
REST_S: Final = 0.05


def given_of(family: Family, settings: ClientSettings) -> Given:
    return Given(
        name=settings.client_id,
        family=family,
        bootstrap=settings.bootstrap,
        group_id=settings.group_id,
        topic=settings.topic,
        client_id=settings.client_id,
        instance=settings.instance_id or None,
        assignor="range",
        session_ms=settings.session_ms,
        heartbeat_ms=settings.heartbeat_ms,
        poll_interval_ms=settings.poll_interval_ms,
        folder="",
    )


def settings_of(arguments: list[str]) -> ClientSettings:
    return msgspec.convert(dict(each.split("=", 1) for each in arguments), ClientSettings, strict=False)


class Member:
    """See the module."""

    def __init__(self, family: Family, settings: ClientSettings) -> None:
        self._settings = settings
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._closing = threading.Event()
        self._consumer: ProcessConsumer = PROCESSES[family](given_of(family, settings), lambda *_: None)
        self._is_closed = False
        self._rests: Callable[[], None] = self._consumer.poll
        """Called between two lines."""

    def run(self) -> None:
        if self._settings.handles_sigterm:
            signal.signal(signal.SIGTERM, lambda *_: self._closing.set())
        threading.Thread(target=self._read, daemon=True).start()
        self._consumer.open()
        while not self._closing.is_set():
            if self._is_closed:
                self._obey(self._lines.get())
                continue
            self._rests()
            while not self._lines.empty():
                self._obey(self._lines.get())
        self._consumer.close()

    def _obey(self, line: str) -> None:
        match line.split():
            case ["commit"]:
                for partition in self._consumer.assigned:
                    self._consumer._commit(partition, 1)
            case ["stall", seconds]:
                self._consumer.stall(float(seconds))
            case ["block", seconds]:
                time.sleep(float(seconds))
            case ["unsubscribe"]:
                self._consumer.unsubscribe()
                self._rests = partial(self._consumer.rest, REST_S)
            case ["subscribe"]:
                self._consumer.subscribe([self._settings.topic])
                self._rests = self._consumer.poll
            case ["close"]:
                self._consumer.close()
                self._is_closed = True
            case ["raise"]:
                raise RuntimeError("nobody catches this")

    def _read(self) -> None:
        for line in sys.stdin:
            self._lines.put(line)
        os._exit(INPUT_ENDED)


if __name__ == "__main__":
    Member(Family(sys.argv[1]), settings_of(sys.argv[2:])).run()
