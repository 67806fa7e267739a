"""A static member: confluent-kafka with an instance id. `python -m demo.static_member BOOTSTRAP GROUP TOPIC INSTANCE`

Closing it sends no LeaveGroup, as for every static member: its place is kept until its session expires. Its exit code
is 0 if it was asked to stop, 3 if its client gave up.
"""

import signal
import sys
import time
from typing import Any

from confluent_kafka import Consumer, KafkaError, TopicPartition

from demo.reports import COMMIT_EVERY_S, Assigned, CommitFailed, Committed, Ended, Retried, Revoked, tell

SESSION_TIMEOUT_MS = 30_000
HEARTBEAT_INTERVAL_MS = 300
GAVE_UP = 3

TRIED_AGAIN = frozenset(
    {
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.NOT_COORDINATOR,
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError._TIMED_OUT,  # noqa: SLF001 -- its public name
        KafkaError._TRANSPORT,  # noqa: SLF001
        KafkaError._WAIT_COORD,  # noqa: SLF001
    }
)
"""The errors of commits while there is no coordinator, or it is loading its log."""


class StaticMember:
    """The poll loop. Every callback runs inside `poll` or `close`."""

    def __init__(self, bootstrap: str, group_id: str, topic: str, group_instance_id: str) -> None:
        self._topic = topic
        self._closing = False
        self._mine: tuple[int, ...] = ()
        self._commit_in_flight = False
        self._commit_due_s = 0.0
        self._offset = 0
        self.fatal: str | None = None
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group_id,
                "group.instance.id": group_instance_id,
                "client.id": group_instance_id,
                "partition.assignment.strategy": "range",
                "session.timeout.ms": SESSION_TIMEOUT_MS,
                "heartbeat.interval.ms": HEARTBEAT_INTERVAL_MS,
                "reconnect.backoff.ms": 250,
                "reconnect.backoff.max.ms": 500,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "error_cb": self._error,
                "on_commit": self._commit_answered,
            }
        )
        self._consumer.subscribe([topic], on_assign=self._assigned, on_revoke=self._revoked)

    def run(self) -> None:
        """Run until `stop`, or an error that is fatal to the client."""
        while not self._closing and self.fatal is None:
            message = self._consumer.poll(0.1)
            if message is not None and (error := message.error()) is not None:
                self._error(error)
            self._commit()
        self._closing = True
        self._consumer.close()

    def stop(self) -> None:
        """Close cleanly, soon."""
        self._closing = True

    def _assigned(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        self._mine = tuple(sorted(partition.partition for partition in partitions))
        tell(Assigned(partitions=self._mine))

    def _revoked(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        self._mine = ()
        if not self._closing and self.fatal is None:
            tell(Revoked(partitions=tuple(sorted(partition.partition for partition in partitions))))

    def _commit(self) -> None:
        if not self._mine or self._commit_in_flight or time.monotonic() < self._commit_due_s:
            return
        self._offset += 1
        self._commit_in_flight = True
        self._commit_due_s = time.monotonic() + COMMIT_EVERY_S
        offsets = [TopicPartition(self._topic, self._mine[0], self._offset)]
        self._consumer.commit(offsets=offsets, asynchronous=True)

    def _commit_answered(self, error: KafkaError | None, _: list[TopicPartition]) -> None:
        self._commit_in_flight = False
        if error is None:
            tell(Committed())
        else:
            tell((Retried if error.code() in TRIED_AGAIN else CommitFailed)(error=error.name()))

    def _error(self, error: KafkaError) -> None:
        if error.code() != KafkaError._FATAL and not error.fatal():  # noqa: SLF001 -- its public name
            tell(Retried(error=error.name()))
        elif self.fatal is None:
            # librdkafka wraps the broker's error, whose text is inside.
            fenced = KafkaError(KafkaError.FENCED_INSTANCE_ID)
            self.fatal = fenced.name() if fenced.str() in error.str() else error.str()
            tell(Ended(error=self.fatal))


def main(arguments: Any) -> int:  # noqa: ANN401 -- sys.argv
    member = StaticMember(*arguments)
    signal.signal(signal.SIGTERM, lambda *_: member.stop())
    member.run()
    return GAVE_UP if member.fatal else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
