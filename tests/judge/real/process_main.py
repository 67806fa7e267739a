"""The process: `python -m tests.judge.real.process_main GIVEN`, with its configuration as JSON.

It polls, as an application does, and between polls follows its orders, until it is ordered to close. If it cannot
continue, it writes down why, and ends.
"""

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from time import sleep
from typing import NoReturn

import msgspec

from tests.judge.real.diary import Diary, What, wall_ms
from tests.judge.real.families import PROCESSES, ProcessConsumer, is_fenced
from tests.judge.real.given import Given, Order


class Orders:
    """The file of orders, which grows."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen = 0

    def new(self) -> Iterator[Order]:
        if not self._path.exists() or self._path.stat().st_size <= self._seen:
            return
        with self._path.open("rb") as file:
            file.seek(self._seen)
            whole, newline, _ = file.read().rpartition(b"\n")
        self._seen += len(whole) + len(newline)
        for line in whole.splitlines():
            yield msgspec.json.decode(line, type=Order)


def run(given: Given, diary: Diary) -> None:
    """Run until ordered to close; a fenced process is restarted by its supervisor, if it has one."""
    orders = Orders(given.orders)
    again_s = given.again_s
    while True:
        consumer = PROCESSES[given.family](
            given, lambda member_id, partitions: diary.note(What.ASSIGNED, member_id=member_id, partitions=partitions)
        )
        try:
            consumer.open()
            diary.note(What.OPENED)
            if serve(consumer, orders, diary):
                return
        except Exception as error:
            if again_s is None or not is_fenced(error):
                raise
            diary.note(What.FENCED, said=str(error)[:200])
            consumer.abandon()
            sleep(again_s)


def serve(consumer: ProcessConsumer, orders: Orders, diary: Diary) -> bool:
    """Poll and obey; True once it is closed."""
    while True:
        consumer.poll()
        for order in orders.new():
            if order.stall_s:
                from_ms = wall_ms()
                consumer.stall(order.stall_s)
                diary.note(What.STALLED, from_ms=from_ms)
            if order.unsubscribe_s:
                from_ms = wall_ms()
                consumer.unsubscribe()
                consumer.rest(order.unsubscribe_s)
                consumer.subscribe([consumer.topic])
                diary.note(What.RESUBSCRIBED, from_ms=from_ms)
            if order.subscribe:
                consumer.subscribe(order.subscribe)
            if order.enforce:
                consumer.enforce()
            if order.assign_s:
                consumer.assign_slowly(order.assign_s)
            if order.close:
                consumer.close()
                return True


def main() -> int:
    given = msgspec.json.decode(sys.argv[1], type=Given)
    diary = Diary(given.diary)
    diary.note(What.STARTED, pid=os.getpid())
    diary.watch()
    try:
        run(given, diary)
    except Exception as error:  # noqa: BLE001 -- whatever a client raises is for the generator to judge
        diary.note(What.FENCED if is_fenced(error) else What.FAILED, said=f"{type(error).__name__}: {error}"[:400])
        print(repr(error), file=sys.stderr, flush=True)
        return 1
    diary.note(What.CLOSED)
    return 0


def run_to_the_end() -> NoReturn:
    """Run, and end the process."""
    code = main()
    sys.stdout.flush()
    os._exit(code)  # clients' threads may hold a process for a while


if __name__ == "__main__":
    run_to_the_end()
