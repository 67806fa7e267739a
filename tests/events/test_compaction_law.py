"""The law: for any history, and any legal compaction of it, the same groups are projected, `seq` included.

Legal is more than Kafka does: of the records of a key all but the last may go, each for itself, before any offset; a
tombstone that is the last one may go as well, once nothing older of its key is left.
"""

import heapq
import random
from collections.abc import Callable, Sequence

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from muster.events.ids import GroupId
from muster.events.projector import Projector
from muster.events.records import StoredRecord
from muster.events.state import Group
from tests.coordinator.group.harness import Harness
from tests.coordinator.group.world import STEPS, World

NUMBERS = st.integers(min_value=0, max_value=44)
Step = tuple[Callable[[World, int, int], None], int, int]


def end_of_life(world: World, _i: int, _j: int) -> None:
    """All fall silent, and the group is deleted."""
    world.harness.sleep(300_000)
    world.harness.delete()


ALL_STEPS = (*STEPS, World.start_static, World.start_dynamic, World.sync_everybody, end_of_life, end_of_life)
HISTORIES = st.lists(st.tuples(st.sampled_from(ALL_STEPS), NUMBERS, NUMBERS), min_size=5, max_size=40)


def history(group_id: str, steps: Sequence[Step]) -> Harness:
    world = World(group_id=group_id)
    for step, i, j in steps:
        step(world, i, j)
    return world.harness


def project(records: Sequence[StoredRecord]) -> dict[GroupId, Group]:
    projector = Projector()
    for record in records:
        projector.feed(record)
    assert not projector.quarantined
    return projector.groups


def compacted(records: Sequence[StoredRecord], before: int, drops: Callable[[bytes], bool]) -> list[StoredRecord]:
    """The records left by compaction if `drops` decides about each that may go."""
    last = {record.key: index for index, record in enumerate(records)}
    kept: list[StoredRecord] = []
    kept_keys: set[bytes] = set()
    for index, record in enumerate(records):
        is_last = last[record.key] == index
        may_go = not is_last or (record.value is None and record.key not in kept_keys)
        if index < before and may_go and drops(record.key):
            continue
        kept.append(record)
        kept_keys.add(record.key)
    return kept


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    histories=st.lists(HISTORIES, min_size=1, max_size=2),
    seed=st.integers(min_value=0, max_value=2**32),
    before=st.just(1.0) | st.floats(min_value=0, max_value=1),
)
def test_any_legal_compaction_projects_to_the_same_groups(
    histories: list[list[Step]], seed: int, before: float
) -> None:
    """Including groups that were deleted and created again."""
    streams = [history(f"group-{n}", steps).records for n, steps in enumerate(histories)]
    records = list(heapq.merge(*streams, key=lambda record: record.timestamp_ms))
    whole = project(records)
    dice = random.Random(seed)
    for _ in range(8):
        chances = {record.key: dice.choice((0.0, 0.3, 0.7, 1.0)) for record in records}
        chosen = compacted(records, round(before * len(records)), lambda key: dice.random() < chances[key])  # noqa: B023
        assert project(chosen) == whole


@settings(max_examples=50, deadline=None, suppress_health_check=list(HealthCheck))
@given(steps=HISTORIES)
def test_compaction_to_the_last_record_of_each_key_projects_to_the_same_group(steps: list[Step]) -> None:
    """After every transition of a history, as a cleaner that is never late would leave it."""
    harness = history("orders", steps)
    for end in harness.transition_ends:
        records = harness.records[:end]
        assert project(compacted(records, end, lambda _: True)) == project(records)
