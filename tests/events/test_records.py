"""Errors about records: the words, and the place."""

from muster.events.records import BrokenRecord


def test_a_broken_record_is_reported_with_its_known_position() -> None:
    """-1 means not known."""
    placed, unplaced = BrokenRecord("cut", partition=0, offset=0), BrokenRecord("cut")
    assert (str(placed), placed.partition, placed.offset) == ("partition 0, offset 0: cut", 0, 0)
    assert (str(unplaced), unplaced.partition, unplaced.offset) == ("cut", -1, -1)
