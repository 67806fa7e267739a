"""Random requests to a group, from a seed: possible requests of clients and administrators, time, takeovers."""

import random
from collections.abc import Callable, Sequence

from kio.schema.errors import ErrorCode

from muster.coordinator.group.commands import ConfigOperation
from muster.coordinator.group.configs import (
    EXPANSION_DELAY,
    LEARNER_TIMEOUT,
    LEARNERS,
    REBALANCE,
    REGISTERED,
    REGISTRATION_TIMEOUT,
    RETIRED,
    RETIREMENT_TIMEOUT,
    TARGET_GROUP_SIZE,
)
from tests.coordinator.group.client import Client, protocols
from tests.coordinator.group.harness import DELAY_MS, Harness
from tests.replay.played import share


class Play:
    """A group under random commands, each of which a client could send."""

    def __init__(self, chance: random.Random) -> None:
        self.harness = Harness(initial_rebalance_delay_ms=chance.choice([0, DELAY_MS]))
        self._chance = chance
        self._clients: list[Client] = []
        self._moves: list[Callable[[], object]] = [
            self._newcomer,
            self._newcomer,
            self._join,
            self._join,
            self._join,
            self._sync,
            self._sync,
            self._sync,
            self._restart,
            self._leave,
            self._remove,
            self._heartbeats,
            self._sleep,
            self._sleep,
            self._long_silence,
            self.harness.takeover,
            self.harness.delete,
        ]

    def step(self) -> None:
        self._chance.choice(self._moves)()
        self.harness.sleep(self._chance.choice([0, 1, 50]))

    def _any(self) -> Client:
        return self._chance.choice(self._clients or [self._new()])

    def _new(self) -> Client:
        h, number = self.harness, len(self._clients)
        version = self._chance.choice([3, 5, 9])
        client = h.static(f"i{number % 4}") if self._chance.random() < 0.5 else h.dynamic(f"d{number}", version=version)
        self._clients.append(client)
        return client

    def _newcomer(self) -> None:
        self._new().enter()

    def _join(self) -> None:
        client = self._any()
        if self._chance.random() < 0.2:
            client.protocols = protocols(*self._chance.sample(["range", "roundrobin"], 2))
        client.enter()

    def _sync(self) -> None:
        for client in self._chance.sample(self._clients, self._chance.randint(0, len(self._clients))):
            client.sync(self.harness.assignments() if client.is_leader and self.harness.group else None)

    def _restart(self) -> None:
        client = self._any().restarted()
        self._clients.append(client)
        client.enter()

    def _leave(self) -> None:
        self._any().leave(self._chance.choice([None, "the consumer is being closed"]))

    def _remove(self) -> None:
        self.harness.leave_instance(*self._chance.sample(["i0", "i1", "i2", "i3"], 2))

    def _heartbeats(self) -> None:
        for client in self._clients:
            client.heartbeat()

    def _sleep(self) -> None:
        self.harness.sleep(self._chance.choice([100, DELAY_MS, 5_000]))

    def _long_silence(self) -> None:
        self.harness.sleep(self._chance.choice([11_000, 70_000]))


class MembershipPlay(Play):
    """Adds administrators, whose requests may be refused; assignments are real, so that standbys can be called."""

    def __init__(self, chance: random.Random) -> None:
        super().__init__(chance)
        self._moves += [*[self._alter] * 8, *[self._settle] * 4, *[self._expected_one_comes] * 3]

    def _settle(self) -> None:
        """Let all members behave like clients until there is nothing left to do."""
        for _ in range(2):
            group = self.harness.group
            members = {} if group is None else group.members
            current = [client for client in self._clients if client.member_id in members]
            for client in current:
                if client.heartbeat().error is not ErrorCode.none:
                    client.enter()
            self._sync_these(current)
            self.harness.sleep(1_000)

    def _expected_one_comes(self) -> None:
        group = self.harness.group
        if group is not None and group.registrations:
            client = self.harness.static(self._chance.choice([*group.registrations]))
            self._clients.append(client)
            client.enter()

    def _alter(self) -> None:
        harness = self.harness
        if harness.group is None:
            return
        changes = self._chance.sample(self._changes(), self._chance.choice([1, 1, 2, 3]))
        harness.alter(*{change[0]: change for change in changes}.values())

    def _changes(self) -> list[tuple[str, ConfigOperation, str | None]]:
        add, remove, put, unset = (ConfigOperation[name] for name in ("APPEND", "SUBTRACT", "SET", "DELETE"))
        group = self.harness.live
        pick = self._chance.choice
        somebody: list[str] = [member.name for member in group.members.values()] or ["nobody"]
        expected: list[str] = [*group.registrations] or ["nobody"]
        retiring: list[str] = [member.name for member in group.members.values() if member.retiring] or ["nobody"]
        return [
            (REGISTERED, add, pick(["i0", "i1", "i2,i3", "i4"])),
            (REGISTERED, put, ",".join(self._chance.sample(["i0", "i1", "i2", "i3"], 2))),
            (REGISTERED, remove, pick(expected)),
            (REGISTRATION_TIMEOUT, put, pick(["3000", "20000"])),
            (RETIRED, add, pick(somebody)),
            (RETIRED, remove, pick(retiring)),
            (RETIREMENT_TIMEOUT, put, pick(["3000", "20000"])),
            (TARGET_GROUP_SIZE, put, pick(["1", "2"])),
            (TARGET_GROUP_SIZE, unset, None),
            (LEARNER_TIMEOUT, put, pick(["4000", "15000"])),
            (LEARNER_TIMEOUT, unset, None),
            (LEARNERS, remove, pick(somebody)),
            (EXPANSION_DELAY, put, pick(["0", "4000"])),
            (EXPANSION_DELAY, unset, None),
            (REBALANCE, put, pick(["static", "force"])),
        ]

    def _sync(self) -> None:
        self._sync_these(self._chance.sample(self._clients, self._chance.randint(0, len(self._clients))))

    def _sync_these(self, clients: Sequence[Client]) -> None:
        for client in clients:
            shown = [member.member_id for member in client.joined.members] if client.joined else []
            client.sync(share(shown) if client.is_leader and shown else None)
