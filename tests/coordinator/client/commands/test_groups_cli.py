"""The messages about a quarantined group before it is repaired."""

from muster.coordinator.client.commands.groups_cli import _damage_lines
from muster.coordinator.group.outcomes import GroupDamage, UnreadableRecord


def test_lost_and_kept_state_is_printed() -> None:
    records = (
        UnreadableRecord(kind="Group", entity_id="", offset=7, reason="no Avro"),
        UnreadableRecord(kind="StaticMember", entity_id="web-1", offset=9, reason="no Avro"),
    )
    damage = GroupDamage(
        partition=3, unreadable=records, generation_id=4, members=2, registered=("web-3",), configs={"a.b": "5"}
    )
    assert _damage_lines("orders", damage) == [
        "orders: quarantined; 2 records in partition 3 cannot be read",
        "  lost: the group's own record (generation, state, protocol), offset 7: no Avro",
        "  lost: the static member web-1, offset 9: no Avro",
        "  kept: generation 4, a.b=5, the registration of web-3, and its committed offsets",
        "  all members rejoin in one rebalance; 2 of their records can be read",
    ]


def test_an_entity_without_readable_data_keeps_its_id() -> None:
    damage = GroupDamage(partition=0, unreadable=(), generation_id=None, members=0, registered=(), configs={})
    assert _damage_lines("orders", damage) == [
        "orders: quarantined; a record that has since been replaced in partition 0 cannot be read",
        "  kept: its id, and its committed offsets",
        "  no member's record can be read; running members rejoin",
    ]
