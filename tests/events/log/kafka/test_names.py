"""The names that a log uses in Kafka, and the recognition of owners' transactional ids."""

import pytest

from muster.events.log.kafka.names import owner_id, owner_id_prefix, owner_ids_of, ownership_group, topics_of


@pytest.mark.parametrize(
    ("transactional_id", "is_owners"),
    [
        (owner_id("events", 0), True),
        (owner_id("events_offsets", 12), True),
        (owner_id("others", 0), False),
        ("muster-events-01", False),
        ("muster-events-", False),
        ("muster-events-1-more", False),
        ("muster-eventsX0", False),
    ],
)
def test_owners_are_recognized_by_their_transactional_ids(transactional_id: str, is_owners: bool) -> None:
    """The topic is a given one, followed by a partition; without a topic nothing is an owner's."""
    assert owner_ids_of(["events", "events_offsets"])(transactional_id.encode()) is is_owners
    assert not owner_ids_of([])(transactional_id.encode())


def test_all_ids_of_a_log_have_one_prefix() -> None:
    """For ACLs: the topic of the events and that of the offsets."""
    for topic in ("events", "events_offsets"):
        assert owner_id(topic, 3).startswith(owner_id_prefix("events"))
    assert owner_id_prefix("events_offsets") == owner_id_prefix("events") == "muster-events"


def test_names_that_a_log_uses_in_its_cluster_begin_with_its_name() -> None:
    assert topics_of("ev") == ("ev", "ev_offsets", "ev_fencing_probe")
    assert (owner_id("ev", 3), ownership_group("ev")) == ("muster-ev-3", "muster-ev-owners")
    assert [owner_id_prefix(topic) for topic in topics_of("ev")] == ["muster-ev"] * 3
