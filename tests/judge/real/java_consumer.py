"""The Java client, driven from Python through a gateway in its virtual machine.

It starts the JVM, and makes the calls. The application's thread is in Python, heartbeats are sent by the client's own
thread in Java; SIGSTOP and SIGKILL go to the process group, so to both.

`py4j.GatewayServer` prints its port on the first line. Rebalances are seen by the member id and the generation that the
client has after each poll: a listener would need calls in the other direction.
"""

import subprocess
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any, Final

from py4j.java_gateway import GatewayParameters, JavaGateway, find_jar_path

from tests.brokers.broker import SHORT_LIVED_JVM_OPTIONS
from tests.brokers.jars import resolved_libs
from tests.brokers.java_tools import LOG_OPTIONS
from tests.clients.consumers import BACKOFF_MAX_MS, BACKOFF_MS, POLL_MS, RunningConsumer

ASSIGNORS: Final = {
    "roundrobin": "org.apache.kafka.clients.consumer.RoundRobinAssignor",
    "range": "org.apache.kafka.clients.consumer.RangeAssignor",
    "cooperative-sticky": "org.apache.kafka.clients.consumer.CooperativeStickyAssignor",
}
DESERIALIZER: Final = "org.apache.kafka.common.serialization.StringDeserializer"


class JavaConsumer(RunningConsumer):
    """Kafka's own client."""

    OTHER_CONFIG: Mapping[str, str]

    def _open(self) -> None:
        libs = resolved_libs()
        command = libs.command(
            "py4j.GatewayServer", "--die-on-broken-pipe", "0", options=(*SHORT_LIVED_JVM_OPTIONS, *LOG_OPTIONS)
        )
        command[command.index("-cp") + 1] += f":{find_jar_path()}"  # behind: the archive of classes is for those before
        self._machine = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self._machine.stdout is not None
        self._gateway = JavaGateway(gateway_parameters=GatewayParameters(port=int(self._machine.stdout.readline())))
        jvm: Any = self._gateway.jvm
        properties = jvm.java.util.Properties()
        config = {
            "bootstrap.servers": self.bootstrap,
            "group.id": self.group_id,
            "enable.auto.commit": "false",
            "auto.offset.reset": "earliest",
            "reconnect.backoff.ms": str(BACKOFF_MS),
            "reconnect.backoff.max.ms": str(BACKOFF_MAX_MS),
            "key.deserializer": DESERIALIZER,
            "value.deserializer": DESERIALIZER,
        }
        for name, value in {**config, **self.OTHER_CONFIG}.items():
            properties.setProperty(name, value)
        if self.instance is not None:
            properties.setProperty("group.instance.id", self.instance)
        self._poll_time = jvm.java.time.Duration.ofMillis(POLL_MS)
        self._consumer = jvm.org.apache.kafka.clients.consumer.KafkaConsumer(properties)
        self.known = "", -1
        self.subscribe([self.topic])

    def subscribe(self, topics: Sequence[str]) -> None:
        subscribed = self._gateway.jvm.java.util.ArrayList()
        for topic in topics:
            subscribed.add(topic)
        self._consumer.subscribe(subscribed)

    def _poll(self) -> None:
        self._consumer.poll(self._poll_time)
        reported = self._consumer.groupMetadata()
        known = str(reported.memberId()), int(reported.generationId())
        if known != self.known and known[1] >= 0:
            self.known = known
            self._assigned_now([SimpleNamespace(partition=each.partition()) for each in self._consumer.assignment()])

    def _commit(self, partition: int, offset: int) -> None:
        raise NotImplementedError

    def _committed(self, partition: int) -> int | None:
        raise NotImplementedError

    def _close(self) -> None:
        self._consumer.close()
        self.end_machine()

    def end_machine(self) -> None:
        """End its machine without a word."""
        self._machine.kill()
        self._machine.wait()
