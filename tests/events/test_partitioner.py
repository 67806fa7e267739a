"""The partition of a group is the one that Kafka would choose (FC1)."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.events import partitioner
from muster.events.ids import REMEMBERED_ID_LENGTH_MAX
from muster.events.partitioner import java_string_hash, partition_for


@pytest.mark.parametrize(
    ("text", "hashed"),
    [
        pytest.param("", 0, id="empty"),
        pytest.param("hello", 99162322, id="positive"),
        pytest.param("polygenelubricants", -(2**31), id="the smallest number"),
        pytest.param("Grüße", 69215351, id="not ASCII"),
        pytest.param("😀", 0xD83D * 31 + 0xDE00, id="two UTF-16 units"),
    ],
)
def test_the_hash_is_javas(text: str, hashed: int) -> None:
    """String.hashCode over UTF-16 units, in 32 bits."""
    assert java_string_hash(text) == hashed


def test_the_partitions_of_a_bounded_number_of_groups_are_remembered() -> None:
    """A client that makes up names fills no memory."""
    assert partitioner._remembered.cache_parameters()["maxsize"] <= 100_000


@given(st.text(st.characters()), st.integers(1, 40))
def test_the_hash_of_any_text_is_the_sum_of_its_units(text: str, times: int) -> None:
    """As Java's documentation defines it, unit by unit."""
    hashed = 0
    for (unit,) in struct.iter_unpack("<H", (text * times).encode("utf-16-le", "surrogatepass")):
        hashed = (31 * hashed + unit) % 2**32
    assert java_string_hash(text * times) % 2**32 == hashed


def test_very_long_ids_are_not_kept() -> None:
    """65,536 of them would take 2 GB."""
    long = "g" * REMEMBERED_ID_LENGTH_MAX
    for group_id, kept in ((long, 1), (long + "g", 0)):
        partitioner._remembered.cache_clear()
        partition_for(group_id, 50)
        assert partitioner._remembered.cache_info().currsize == kept


def test_the_smallest_number_counts_as_zero() -> None:
    """Kafka's Utils.abs makes Integer.MIN_VALUE 0."""
    assert partition_for("polygenelubricants", 50) == 0


@pytest.mark.parametrize(("group_id", "partition"), [("orders", 31), ("payments", 13), ("group", 47)])
def test_a_group_keeps_its_partition(group_id: str, partition: int) -> None:
    """Pinned, from the hashes that Java prints: another formula would look for a group where it is not."""
    assert partition_for(group_id, 50) == partition


@given(st.text(), st.integers(1, 1000))
def test_every_group_has_a_partition(group_id: str, partitions: int) -> None:
    """Any string, lone surrogates too, goes to one of the partitions there are."""
    assert 0 <= partition_for(group_id, partitions) < partitions
