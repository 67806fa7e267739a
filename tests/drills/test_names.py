"""The names of a run, and the refusal of all others."""

import pytest

from muster.drills.names import Names, member_name, new_run, short
from muster.drills.plan import NotOurs

NAMES = Names("0123456789")


def test_groups_and_topics_have_the_runs_name() -> None:
    assert NAMES.group(4, static=True) == "muster-drill-0123456789-static-4"
    assert NAMES.group(5, static=False) == "muster-drill-0123456789-dynamic-5"
    assert NAMES.topic == "muster-drill-0123456789"


def test_each_run_has_another_name() -> None:
    assert new_run() != new_run()
    assert Names(new_run()).prefix.startswith("muster-drill-")


@pytest.mark.parametrize("group_id", ["orders", "muster-drill-9876543210-static-0", "muster-drill-0123456789", ""])
def test_nothing_is_done_to_a_group_of_others(group_id: str) -> None:
    """Another drill's is not ours either."""
    assert not NAMES.is_ours(group_id)
    with pytest.raises(NotOurs, match="was not made by this drill"):
        NAMES.check_ours(group_id)


def test_an_existing_group_of_our_name_stops_the_drill() -> None:
    """No one else creates such a name, so something is wrong."""
    NAMES.check_new(["orders", "muster-drill-9876543210-static-0"])
    with pytest.raises(NotOurs, match="muster-drill-0123456789-static-1 is there already"):
        NAMES.check_new(["orders", NAMES.group(1, static=True)])


def test_the_topics_of_a_log_are_distinguished_from_those_of_other_runs() -> None:
    """And from those that only begin with the same text."""
    ours = ["muster-drill-0123456789", "muster-drill-0123456789_offsets", "muster-drill-0123456789_fencing_probe"]
    ours += [NAMES.subscribed_topic]
    others = ["muster-drill-01234567890", "orders", "muster-drill-9876543210_offsets", "x_muster-drill-0123456789"]
    assert [each for each in [*others, *ours] if NAMES.is_topic(each)] == ours


def test_people_read_the_name_without_what_all_have_in_common() -> None:
    group_id = NAMES.group(2, static=False)
    assert short(group_id, NAMES.run) == "dynamic-2"
    assert member_name(group_id, "member-1", NAMES.run) == "dynamic-2 member-1"
    assert short("orders", NAMES.run) == "orders"
