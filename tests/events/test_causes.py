"""The causes of events: each has a text, and begins a rebalance in Kafka, beyond it, or not at all."""

import pytest

from muster.events.causes import KAFKAS_TRIGGERS, PLANNED_TRIGGERS, TEXTS, TRIGGERS, Cause


def test_each_cause_has_a_text() -> None:
    assert TEXTS.keys() == set(Cause)


@pytest.mark.parametrize(
    ("cause", "in_kafka", "beyond"),
    [
        (Cause.MEMBER_LEFT, True, False),
        (Cause.SESSION_EXPIRED, True, False),
        (Cause.REBALANCE_REQUESTED, False, True),
        (Cause.GROUP_RELEASED, False, True),
        (Cause.REJOINED, False, False),
        (Cause.STATIC_RESTART_ABSORBED, False, False),
    ],
)
def test_a_cause_that_begins_a_rebalance_does_so_in_kafka_or_beyond_it(
    cause: Cause, in_kafka: bool, beyond: bool
) -> None:
    assert (cause in KAFKAS_TRIGGERS, cause in PLANNED_TRIGGERS) == (in_kafka, beyond)
    assert (cause in TRIGGERS) == (in_kafka or beyond)
    assert not KAFKAS_TRIGGERS & PLANNED_TRIGGERS
