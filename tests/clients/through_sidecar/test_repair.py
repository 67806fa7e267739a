"""A group that a sidecar cannot read is repaired through it, with the rights that the brokers grant."""

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path
from uuid import uuid4

import pytest
from typer.testing import CliRunner

from muster import cli
from tests.brokers.broker import Broker
from tests.clients.consumers import Confluent
from tests.clients.probe import until_stable
from tests.clients.through_sidecar.sidecar import new_topic, running_sidecar
from tests.replay import written
from tests.waiting import until_so

pytestmark = pytest.mark.clients


def test_a_quarantined_group_is_repaired_through_the_sidecar(kafka_broker: Broker, tmp_path: Path) -> None:
    """The config belongs to Muster; a waiting consumer then joins."""
    group, topic = f"orders-{uuid4().hex[:8]}", new_topic(kafka_broker.bootstrap)
    url = asyncio.run(written.sqlite_log(tmp_path / "muster.db", written.script(group).created()))
    with closing(sqlite3.connect(tmp_path / "muster.db", isolation_level=None)) as connection:
        connection.execute("UPDATE records SET value = x'00'")
    with running_sidecar(kafka_broker.bootstrap, nodes=[1], options=["--log", url]) as sidecar:
        command = ["groups", "repair", group, "--bootstrap", sidecar.bootstrap]
        result = CliRunner().invoke(cli.app, command)
        assert result.exit_code == 0, result.output
        assert f"{group}: quarantined; 1 record in partition" in result.stdout
        done = CliRunner().invoke(cli.app, [*command, "--yes"])
        assert done.exit_code == 0, done.output
        consumer = Confluent(sidecar.bootstrap, group, topic).start()
        until_so(lambda: bool(consumer.assigned), lambda: consumer.error)
        until_stable(sidecar.bootstrap, group, members=1)
        consumer.end()
