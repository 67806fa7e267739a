"""Watches a group from outside, as an administrator could: DescribeGroups, several times a second, in a thread.

Records the states that were seen, and the earliest and latest time at which each was true; knows nothing of events, nor
of the actions on the group. A look was true at some time between the request and its response. Only changes from the
previous look are kept. A rebalance may end between two looks; then the generation shows it (`asking.py`).
"""

import asyncio
import threading
from typing import Any, Final

import msgspec

from tests.conformance.wire import Connection
from tests.judge.real.diary import wall_ms

CHECK_INTERVAL_S: Final = 0.05
AT_REST: Final = frozenset({"Stable", "Empty", "Dead"})
NO_GROUP: Final = frozenset({15, 16, 69})


class Look(msgspec.Struct, kw_only=True):
    """The group, unchanged from the first look to the last. `asked_ms`, `answered_ms`: of the first request and
    response; `last_asked_ms` and `last_answered_ms`: of the last ones that showed it unchanged.
    """

    asked_ms: int
    answered_ms: int
    last_asked_ms: int
    last_answered_ms: int
    state: str
    members: dict[str, tuple[str, str | None]]
    """Client id and instance id by member id."""

    @property
    def is_at_rest(self) -> bool:
        return self.state in AT_REST


class Onlooker:
    """See the module."""

    def __init__(self, bootstrap: str, group_id: str) -> None:
        self._bootstrap, self._group_id = bootstrap, group_id
        self._ends = threading.Event()
        self._lock = threading.Lock()
        self._looks: list[Look] = []
        self.gaps: list[tuple[int, int]] = []
        """From when to when there was no answer for longer than usual."""
        self.names: dict[str, str] = {}
        """The client id of each member id that was ever seen."""
        self._thread = threading.Thread(target=lambda: asyncio.run(self._watch()), name="onlooker", daemon=True)

    def __enter__(self) -> "Onlooker":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        self._thread.join()

    @property
    def looks(self) -> list[Look]:
        """All so far, the oldest first."""
        with self._lock:
            return [msgspec.structs.replace(each) for each in self._looks]

    def last(self) -> Look | None:
        with self._lock:
            return msgspec.structs.replace(self._looks[-1]) if self._looks else None

    def unrest(self, from_ms: int, until_ms: int) -> list[Look]:
        """Return the looks at which the group was not at rest, requested after the one time and answered before the
        other.
        """
        return [
            each
            for each in self.looks
            if not each.is_at_rest and each.last_answered_ms > from_ms and each.asked_ms < until_ms
        ]

    async def _watch(self) -> None:
        connection: Connection | None = None
        before_ms = wall_ms()
        while not self._ends.is_set():
            asked_ms = wall_ms()
            try:
                if connection is None or connection.is_lost:
                    connection = await Connection.open(self._bootstrap, client_id="onlooker")
                answer = await connection.ask(
                    "DescribeGroups", 5, groups=[self._group_id], include_authorized_operations=False
                )
            except (OSError, TimeoutError):
                connection = None
            else:
                answered_ms = wall_ms()
                self._note(answer["groups"][0], asked_ms, answered_ms)
                if answered_ms - before_ms > 1_000 * CHECK_INTERVAL_S:
                    self.gaps.append((before_ms, answered_ms))
                before_ms = answered_ms
            await asyncio.sleep(CHECK_INTERVAL_S)
        if connection is not None:
            connection.close()

    def _note(self, group: dict[str, object], asked_ms: int, answered_ms: int) -> None:
        if group["error_code"] in NO_GROUP:
            return
        reported: list[dict[str, Any]] = group["members"]  # type: ignore[assignment]
        members: dict[str, tuple[str, str | None]] = {
            each["member_id"]: (each["client_id"], each["group_instance_id"]) for each in reported
        }
        self.names.update({member_id: client_id for member_id, (client_id, _) in members.items()})
        state = str(group["group_state"])
        with self._lock:
            last = self._looks[-1] if self._looks else None
            if last is not None and (last.state, last.members) == (state, members):
                last.last_asked_ms, last.last_answered_ms = asked_ms, answered_ms
                return
            self._looks.append(
                Look(
                    asked_ms=asked_ms,
                    answered_ms=answered_ms,
                    last_asked_ms=asked_ms,
                    last_answered_ms=answered_ms,
                    state=state,
                    members=members,
                )
            )
