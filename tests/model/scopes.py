"""The worlds to explore: the processes, what an administrator does, and where the search begins.

Each membership feature is a scope of its own, with one or two settings that an administrator may change at any time;
together they would give too many states. The search of such a scope begins on paths where the setting was made before
the members joined, and after.
"""

import msgspec

from muster.coordinator.group.commands import AlterGroupConfig, ConfigChange, ConfigOperation
from muster.coordinator.group.configs import (
    EXPANSION_DELAY,
    LEARNER_TIMEOUT,
    REBALANCE,
    REGISTERED,
    RETIRED,
    TARGET_GROUP_SIZE,
)
from tests.model.state import State
from tests.model.steps import STEPS, Step
from tests.model.world import GROUP_ID, NEW_VERSION, OLD_VERSION, UNIT_MS, World, caller

Way = tuple[tuple[str, int], ...]
"""Steps by name, and which process takes them."""

S1_A, S2_B, D = 0, 3, 6
"""The ways to start a process, as `steps.starts` numbers them."""

FORMED: Way = (("passes", 0), ("passes", 0))
STATIC_LEADS: Way = (("starts", S1_A), ("starts", S2_B), ("starts", D), ("joins", 3), *FORMED)
DYNAMIC_LEADS: Way = (("starts", D), ("joins", 3), ("starts", S1_A), ("starts", S2_B), *FORMED)
ORDINARY_WAYS: tuple[Way, ...] = (
    (*STATIC_LEADS, ("syncs", 1), ("syncs", 3), ("syncs", 0)),
    (*DYNAMIC_LEADS, ("syncs", 1), ("syncs", 0), ("syncs", 3)),
)
"""From nothing to a stable group of three, led by a static member and by a dynamic one."""

LATE: Way = (("joins", 0), ("joins", 1), ("waits", 0), ("heartbeats", 3))
"""The leader then makes the group rebalance, and the dynamic member sends heartbeats but does not join."""


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """A config that an administrator sets. `value` None: the default."""

    name: str
    value: str | None

    def __str__(self) -> str:
        return f"{self.name}={self.value}" if self.value is not None else f"no {self.name}"


class Scope(msgspec.Struct, frozen=True, kw_only=True):
    """`settings`: the settings that an administrator may request; the first one is requested on the paths already."""

    version: int = NEW_VERSION
    settings: tuple[Setting, ...] = ()

    @property
    def steps(self) -> tuple[Step, ...]:
        """The steps of every world, and what an administrator does in this one."""
        if not self.settings:
            return STEPS
        return (*STEPS, Step(name="asks", whos=len(self.settings), take=self._asks, words=self._words))

    @property
    def ways(self) -> tuple[Way, ...]:
        """The paths whose states the search begins in."""
        if not self.settings:
            return (*ORDINARY_WAYS[1:], (*ORDINARY_WAYS[0], *LATE))
        asks = (("asks", 0),)
        return tuple(way for usual in ORDINARY_WAYS for way in ((*usual[:1], *asks, *usual[1:]), (*usual, *asks)))

    def _asks(self, world: World, state: State, who: int) -> tuple[State, ...]:
        if state.group is None:
            return ()
        setting = self.settings[who]
        operation = ConfigOperation.DELETE if setting.value is None else ConfigOperation.SET
        change = ConfigChange(name=setting.name, operation=operation, value=setting.value)
        by = caller(state, "admin", 1)
        command = AlterGroupConfig(group_id=GROUP_ID, caller=by, changes=(change,), validate_only=False)
        return world.ask(state, command, None)

    def _words(self, _world: World, _state: State, who: int) -> str:
        return f"an administrator asks for {self.settings[who]}"


def _planned(*settings: tuple[str, str | None]) -> Scope:
    return Scope(settings=tuple(Setting(name=name, value=value) for name, value in settings))


KAFKA = {"new clients": Scope(), "old clients": Scope(version=OLD_VERSION)}
BEYOND = {
    "registration": _planned((REGISTERED, "b"), (REGISTERED, None)),
    "expansion": _planned((EXPANSION_DELAY, str(UNIT_MS)), (EXPANSION_DELAY, None)),
    "learners": _planned((LEARNER_TIMEOUT, str(2 * UNIT_MS)), (LEARNER_TIMEOUT, None)),
    "standbys": _planned((TARGET_GROUP_SIZE, "1"), (TARGET_GROUP_SIZE, "2"), (TARGET_GROUP_SIZE, None)),
    "retirement": _planned((RETIRED, "a"), (RETIRED, None)),
    "rebalance": _planned((REBALANCE, "force")),
}
SCOPES = KAFKA | BEYOND
