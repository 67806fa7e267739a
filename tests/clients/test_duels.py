"""Duels with real clients: two live processes with one instance id are reported, whether they can be fenced or not."""

import pytest

from tests.clients.consumers import Aiokafka, Confluent
from tests.clients.crew import crew
from tests.muster_process import MusterProcess
from tests.waiting import until_so

pytestmark = pytest.mark.clients

DUEL = "two live processes share one group.instance.id and keep fencing each other"


def duels(muster: MusterProcess, group_id: str) -> list[dict[str, object]]:
    return [event for event in muster.events(DUEL) if event["group_id"] == group_id]


def test_clients_that_do_not_understand_that_they_are_fenced(muster: MusterProcess) -> None:
    """Known bug S19: aiokafka starts over each time, for ever; both hosts are named."""
    with crew(muster, Aiokafka) as group:
        first = group.add("a")
        group.until_shared()
        second = group.add("a")
        until_so(lambda: bool(duels(muster, group.group_id)), lambda: muster.output[-2_000:])
        duel = duels(muster, group.group_id)[0]
        assert duel["group_instance_id"] == "a"
        assert str(duel["client_id"]).startswith("aiokafka")
        assert duel["client_host"] == duel["other_client_host"] == "/127.0.0.1"
        for consumer in (first, second):
            group.consumers.remove(consumer)
            consumer.end()


def test_a_fenced_client_that_its_supervisor_starts_again(muster: MusterProcess) -> None:
    """Known bug S16: it ends, is restarted, and fences the other."""
    with crew(muster, Confluent) as group:
        first = group.add("a")
        group.until_shared()
        group.add("a")
        until_so(lambda: first.error is not None, lambda: "it goes on")
        group.consumers.remove(first)
        assert not duels(muster, group.group_id)
        group.add("a")
        until_so(lambda: bool(duels(muster, group.group_id)), lambda: muster.output[-2_000:])
        for consumer in list(group.consumers):
            group.consumers.remove(consumer)
            consumer.end()
