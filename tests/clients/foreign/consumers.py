"""Consumers in other languages, with the interface of the Python libraries' (`tests/clients/consumers.py`)."""

from collections.abc import Sequence
from typing import Any, ClassVar, Final

from tests.clients.consumers import HEARTBEAT_MS, POLL_MS, SESSION_MS, Record, RunningConsumer
from tests.clients.foreign.client import ForeignClient
from tests.clients.foreign.programs import FRANZ_GO, KAFKAJS, Program


class ForeignError(Exception):
    """An error after which its library cannot continue."""


class ForeignConsumer(RunningConsumer):
    """A consumer in another language. Its process ends with its thread."""

    program: ClassVar[Program]

    def __init__(self, bootstrap: str, group_id: str, topic: str, *, instance: str | None = None) -> None:
        super().__init__(bootstrap, group_id, topic, instance=instance)
        self.complaints: list[str] = []
        """The errors after which it continued."""
        self.member_id: str | None = None
        self.generation_id: int | None = None
        """The generation of its last assignment; kafkajs does not report it."""
        self._client: ForeignClient | None = None

    def _run(self) -> None:
        try:
            super()._run()
        finally:
            if self._client is not None:
                self._client.kill()

    def subscribe(self, topics: Sequence[str]) -> None:
        raise NotImplementedError(f"a foreign program has one topic, and {', '.join(topics)} would be others")

    def _open(self) -> None:
        self._client = ForeignClient(
            self.program,
            bootstrap=self.bootstrap,
            topic=self.topic,
            group_id=self.group_id,
            instance_id=self.instance or "",
            session_ms=SESSION_MS,
            heartbeat_ms=HEARTBEAT_MS,
        )

    def _poll(self) -> None:
        assert self._client is not None
        reported = self._client.next_event(within_s=POLL_MS / 1000)
        while reported is not None:
            self._told(reported)
            reported = self._client.next_event(within_s=0)

    def _told(self, reported: dict[str, Any]) -> None:
        match reported["event"]:
            case "assigned":
                self.assigned = frozenset(reported["partitions"])
                self.member_id, self.generation_id = reported["member_id"], reported["generation_id"]
                self.assignments += 1
            case "record":
                record = Record(partition=reported["partition"], offset=reported["offset"], value=reported["value"])
                self.records.append(record)
            case "error" if reported["is_fatal"]:
                raise ForeignError(reported["message"])
            case "error":
                self.complaints.append(reported["message"])

    def _commit(self, partition: int, offset: int) -> None:
        assert self._client is not None
        self._client.ask("commit", partition=partition, offset=offset)

    def _committed(self, partition: int) -> int | None:
        assert self._client is not None
        offset: int | None = self._client.ask("committed", partition=partition)
        return offset

    def _close(self) -> None:
        assert self._client is not None
        self._client.close()


class Kafkajs(ForeignConsumer):
    """kafkajs. It has no static members: with an `instance` it ends with `ForeignError`."""

    program = KAFKAJS


class FranzGo(ForeignConsumer):
    """franz-go."""

    program = FRANZ_GO


FOREIGN_LIBRARIES: Final[tuple[type[ForeignConsumer], ...]] = (Kafkajs, FranzGo)
