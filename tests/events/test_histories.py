"""Logs written by each format level still project to what they projected to when they were recorded."""

import pytest

from muster import schemas
from muster.events.avro.codec import event_type_of
from muster.events.events import EVENT_TYPES
from tests.events.histories import project, read_log, read_projection, recorded_levels
from tests.events.histories.story import story


@pytest.mark.parametrize("level", recorded_levels())
def test_recorded_history_projects_to_the_stored_result(level: int) -> None:
    """Decoded from its bytes, whole."""
    assert project(read_log(level)) == read_projection(level)


def test_each_level_has_a_history() -> None:
    """A new level comes with one: `python -m tests.events.histories`."""
    assert recorded_levels() == schemas.levels()


@pytest.mark.parametrize("level", recorded_levels())
def test_recorded_history_has_every_type_of_its_level(level: int) -> None:
    """Whatever could be written then is read here."""
    recorded = {event_type_of(record.value) for record in read_log(level) if record.value is not None}
    introduced = {schema["name"] for schema in schemas.event_schemas(level)}
    assert introduced <= {event_type.__name__ for event_type in recorded if event_type is not None}


def test_story_has_every_event_type() -> None:
    """A new type of event has to find its place in the story."""
    reported = {event_type_of(record.value) for record in story() if record.value is not None}
    assert reported == set(EVENT_TYPES)
