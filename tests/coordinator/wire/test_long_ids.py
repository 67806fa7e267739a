"""A group with a very long id is as much work as many groups, in each request that names several."""

from collections.abc import Mapping
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from muster.coordinator.service import CommittedOffset
from muster.coordinator.wire.resources import ResourceType
from muster.events.ids import GroupId
from muster.events.kafka.codec.reading import STRING_BYTES_MAX
from muster.events.steps import ENTRIES_AT_ONCE, entries_of
from tests.coordinator.kio_client import Exchange
from tests.coordinator.scripted import ScriptedGroups, new_service
from tests.waiting import until

CHANGES = [{"name": "members.retiring", "config_operation": 0, "value": "a"}]


def requests(group_ids: list[str]) -> dict[str, tuple[int, dict[str, Any]]]:
    """Version and body of each request that names several groups."""
    resources = [{"resource_type": ResourceType.GROUP, "resource_name": group_id} for group_id in group_ids]
    fetched = [{"group_id": group_id, "topics": None, "member_id": None, "member_epoch": -1} for group_id in group_ids]
    described = [{**each, "configuration_keys": None} for each in resources]
    altered = [{**each, "configs": CHANGES} for each in resources]
    return {
        "DescribeGroups": (5, {"groups": group_ids, "include_authorized_operations": False}),
        "DeleteGroups": (2, {"groups_names": group_ids}),
        "OffsetFetch": (9, {"groups": fetched, "require_stable": False}),
        "DescribeConfigs": (4, {"resources": described, "include_synonyms": False, "include_documentation": False}),
        "IncrementalAlterConfigs": (1, {"resources": altered, "validate_only": False}),
    }


class CountingGroups(ScriptedGroups):
    """Answers no command; `asked` has the groups of commands and offset fetches."""

    def __init__(self) -> None:
        super().__init__(lambda _command: None)
        self.fetched = 0

    @property
    def asked(self) -> int:
        return len(self.commands) + self.fetched

    def committed_offsets(self, group_id: GroupId) -> Mapping[tuple[str, int], CommittedOffset] | ErrorCode:
        self.fetched += 1
        return super().committed_offsets(group_id)


@pytest.mark.parametrize("name", requests([]))
@pytest.mark.parametrize(("length", "at_once"), [(STRING_BYTES_MAX, 1), (100, 3)])
async def test_after_a_group_with_a_very_long_id_others_have_their_turn(name: str, length: int, at_once: int) -> None:
    version, body = requests([f"{n}" * length for n in range(3)])[name]
    groups = CountingGroups()
    Exchange(new_service(groups), name, version, **body)
    assert groups.asked == at_once
    await until(lambda: groups.asked == 3)


def test_the_longest_id_counts_as_what_is_done_at_once() -> None:
    assert (entries_of(""), entries_of("orders"), entries_of("g" * STRING_BYTES_MAX)) == (1, 1, ENTRIES_AT_ONCE)
