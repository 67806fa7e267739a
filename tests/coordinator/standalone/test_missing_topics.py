"""Undeclared topics that clients ask for: a log line with their names and the way out."""

from typing import Any

from structlog.testing import capture_logs

from muster.coordinator.log_throttle import LINE_INTERVAL_MS, NAMES_MAX
from muster.coordinator.observability.metrics import REGISTRY
from muster.coordinator.standalone.missing_topics import MissingTopics
from tests.coordinator.kio_client import Exchange
from tests.coordinator.scripted import ScriptedGroups, new_service


def test_a_topic_that_is_not_declared_is_named_once_a_minute() -> None:
    """The next line has the count since; made-up names share one."""
    now_ms = 0
    missing = MissingTopics(lambda: now_ms)
    before = REGISTRY.get_sample_value("muster_topics_not_declared_total") or 0.0
    with capture_logs() as reported:
        for _ in range(5):
            missing.note("odrers", "etl", "/10.0.0.7")
        now_ms += LINE_INTERVAL_MS
        missing.note("odrers", "etl", "/10.0.0.7")
        for number in range(100):
            missing.note(f"made-up-{number}", "etl", "/10.0.0.7")
    assert REGISTRY.get_sample_value("muster_topics_not_declared_total") == before + 106
    assert [(line["topic"], line["others_since"]) for line in reported[:2]] == [("odrers", 0), ("odrers", 4)]
    assert len(reported) == 2 + NAMES_MAX
    assert "--topic odrers:PARTITIONS" in reported[0]["way_out"]


def test_metadata_reports_requested_topics_that_do_not_exist() -> None:
    """An invalid topic name is the client's own mistake; a request for all topics names none."""
    requests: list[tuple[str, str]] = []
    service = new_service(ScriptedGroups(lambda _command: None))
    service.missing_topic = lambda topic, client_id, _: requests.append((topic, client_id))

    def metadata(topics: Any) -> None:
        Exchange(
            service,
            "Metadata",
            9,
            topics=topics,
            allow_auto_topic_creation=True,
            include_cluster_authorized_operations=False,
            include_topic_authorized_operations=False,
        )

    metadata(None)
    metadata([{"name": "orders"}, {"name": "odrers"}, {"name": "no topic!"}])
    assert [topic for topic, _ in requests] == ["odrers"]
