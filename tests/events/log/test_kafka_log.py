"""A log in Kafka describes itself before it is open."""

from muster.events.kafka.security import NOT_SECURED
from muster.events.log.kafka.log import KafkaEventLog


def test_before_it_is_open_nothing_is_known_of_the_topic() -> None:
    """But its name; and nothing is wrong."""
    log = KafkaEventLog(["127.0.0.1:1"], "events", security=NOT_SECURED)
    assert (log.location, log.identity) == ("events", ".events")
    assert (log.partitions, log.cluster_id, log.claim_renewal_ms) == (0, None, None)
    assert (log.warnings, log.trouble) == ((), None)
