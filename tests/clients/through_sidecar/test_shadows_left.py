"""A Muster that is gone for good: its shadows are listed and removed at the brokers, and clients join there at once."""

import json
import re
from uuid import uuid4

import pytest
from typer.testing import CliRunner, Result

from muster import cli
from tests.brokers.broker import Broker
from tests.clients.consumers import Confluent
from tests.clients.through_sidecar.sidecar import assert_is_owned, new_topic, running_sidecar
from tests.waiting import until_so

pytestmark = [pytest.mark.clients, pytest.mark.broker]


def run_shadows(broker: Broker, *arguments: str) -> Result:
    return CliRunner().invoke(cli.app, ["groups", "shadows", "--bootstrap", broker.bootstrap, *arguments])


def test_the_shadows_of_a_muster_that_is_gone_are_removed(kafka_broker: Broker) -> None:
    """Listing changes nothing and shows only them; groups of others are left alone.

    A sidecar does not show them, and says so.
    """
    bootstrap, topic = kafka_broker.bootstrap, new_topic(kafka_broker.bootstrap)
    owned, others = f"left-{uuid4().hex[:8]}", f"others-{uuid4().hex[:8]}"
    url = f"kafka://{bootstrap}/left-events-{uuid4().hex[:8]}"
    direct = Confluent(bootstrap, others, topic).start()
    until_so(lambda: bool(direct.assigned), lambda: direct.error)
    with running_sidecar(bootstrap, nodes=[1], options=["--log", url, "--log-replication", "1"]) as sidecar:
        consumer = Confluent(sidecar.bootstrap, owned, topic).start()
        until_so(lambda: bool(consumer.assigned), lambda: consumer.error)
        assert_is_owned(bootstrap, owned)
        hidden = CliRunner().invoke(cli.app, ["groups", "shadows", "--bootstrap", sidecar.bootstrap])
        assert (hidden.exit_code, hidden.stdout) == (2, "")
        assert f"{sidecar.bootstrap} is Muster, which does not list its own shadows: name a broker" in hidden.stderr
        sidecar.kill()
        consumer.end()
    listed = run_shadows(kafka_broker)
    assert listed.exit_code == 0, listed.output
    (line,) = [line for line in listed.stdout.splitlines() if line.startswith(f"{owned}: muster-")]
    assert re.search(r", of \d+\.\d+\.\d+\.\d+$", line), line  # the broker may see a container's gateway
    assert others not in listed.stdout
    assert "Nothing was changed; give --yes to remove them." in listed.stdout
    assert_is_owned(bootstrap, owned)
    removed = run_shadows(kafka_broker, "--yes", "--format", "json")
    assert removed.exit_code == 0, removed.output
    printed = json.loads(removed.stdout)
    assert printed["removed"] == len(printed["shadows"]) >= 1
    again = Confluent(bootstrap, owned, topic).start()
    until_so(lambda: bool(again.assigned), lambda: again.error)
    assert direct.assigned
    assert "There are no shadows in this cluster." in run_shadows(kafka_broker).stdout
    again.end()
    direct.end()


def test_a_sidecar_for_other_groups_shows_shadows_as_the_brokers_do(kafka_broker: Broker) -> None:
    """It hides no groups, as it serves none that exist; for one that it serves the command says so."""
    bootstrap, group = kafka_broker.bootstrap, f"named-{uuid4().hex[:8]}"
    with running_sidecar(bootstrap, nodes=[1], options=["--log", "memory:", "--groups", f"{group}*"]) as sidecar:
        result = CliRunner().invoke(cli.app, ["groups", "shadows", "--bootstrap", sidecar.bootstrap])
        assert result.exit_code == 0, result.output
        consumer = Confluent(sidecar.bootstrap, group, new_topic(bootstrap)).start()
        until_so(lambda: bool(consumer.assigned), lambda: consumer.error)
        result = CliRunner().invoke(cli.app, ["groups", "shadows", "--bootstrap", sidecar.bootstrap])
        assert (result.exit_code, result.stdout) == (2, "")
        consumer.end()
    cleared = CliRunner().invoke(cli.app, ["groups", "shadows", "--bootstrap", bootstrap, "--yes"])
    assert cleared.exit_code == 0, cleared.output
