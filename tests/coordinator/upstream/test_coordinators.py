"""The cache of groups' coordinators is bounded, whatever group ids clients use."""

from kio.schema.errors import ErrorCode

from muster.coordinator.upstream.coordinators import GroupCoordinators
from muster.events.ids import REMEMBERED_ID_LENGTH_MAX
from muster.events.kafka.errors import OwnShortage, TryAgain


def test_a_coordinator_that_could_not_be_queried_is_looked_up_again() -> None:
    """Even for a reason on our side; then it does not count as an outage of the coordinator."""
    for error, away in ((TryAgain("kafka:9092 hung up"), True), (OwnShortage("no free file"), False)):
        coordinators = GroupCoordinators(lambda: 7)
        coordinators.learn("g", 1)
        coordinators.failed("g", error)
        assert coordinators.known("g") is None
        assert (coordinators.last_outage("g") is not None) == away


def test_a_coordinator_that_was_never_found_is_unreachable_since_an_unknown_time() -> None:
    """No broker is remembered for that."""
    coordinators = GroupCoordinators(lambda: 7)
    coordinators.failed("g", TryAgain("kafka:9092 hung up"))
    assert coordinators.last_outage("g") == (0, 7)
    assert not coordinators.heard


def test_a_coordinator_is_unreachable_since_its_last_response_at_the_earliest() -> None:
    """Members whose silence started before that were silent on their own."""
    coordinators = GroupCoordinators(lambda: 7)
    coordinators.learn("g", 1)
    coordinators.heard[1].answered(5)
    coordinators.failed("g", TryAgain("kafka:9092 hung up"))
    assert coordinators.last_outage("g") == (5, 7)


def test_a_group_with_a_very_long_id_is_looked_up_each_time() -> None:
    """Caching the usual number of them would take 3 GB."""
    coordinators, long = GroupCoordinators(lambda: 7), "g" * REMEMBERED_ID_LENGTH_MAX
    for group_id, node_id, away in ((long, 1, (0, 7)), (long + "g", None, None)):
        coordinators.moved(group_id, ErrorCode.coordinator_load_in_progress)
        coordinators.learn(group_id, 1)
        assert (coordinators.known(group_id), coordinators.last_outage(group_id)) == (node_id, away)
