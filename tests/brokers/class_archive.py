"""Kafka's classes, parsed once for all Java processes of this machine, which halves the processor time of a broker's
start.

It creates Java's archive of classes (class data sharing), which the wheel's runtime lacks; every command of `jars.py`
uses it if there is one.

A broker is started once to list the classes that it loads, and `java -Xshare:dump` writes those into a file in the
cache. Java compares that file with the jars when it starts, and ignores it if they differ.
"""

import os
import tempfile
from pathlib import Path
from typing import Final

from tests.brokers.broker import (
    SHORT_LIVED_JVM_OPTIONS,
    BrokerFailed,
    Node,
    free_ports,
    kraft_settings,
    log_tail,
    properties_text,
    run_java,
)
from tests.brokers.child import leashed
from tests.brokers.jars import Libs, cache_lock
from tests.brokers.readiness import NotReady, wait_until_answering

FAILURE: Final = "Java's archive of Kafka's classes could not be made"
ANY_CLUSTER: Final = "5L6g3nShT-eMCtK--X86sw"


def make_class_archive(libs: Libs) -> None:
    """Create the archive if it is missing; takes some 10 s, once a machine. Raises `BrokerFailed` if no broker runs."""
    if libs.class_archive.exists():
        return
    with cache_lock("class-archive"):
        if not libs.class_archive.exists():
            with tempfile.TemporaryDirectory(prefix="muster-classes-") as scratch:
                _dump(libs, _classes_of_a_broker(libs, Path(scratch)))


def _classes_of_a_broker(libs: Libs, scratch: Path) -> Path:
    """The list of all classes that a broker loads until it responds, in Java's own form."""
    properties, classes, log = scratch / "server.properties", scratch / "classes", scratch / "log"
    port, controller_port = free_ports(2)
    node = Node(ports={"PLAINTEXT": port}, controller_port=controller_port)
    properties.write_text(properties_text(kraft_settings(node, log_dir=f"{scratch}/data")), encoding="utf-8")
    format_storage = libs.command("kafka.tools.StorageTool", "format", "-t", ANY_CLUSTER, "-c", str(properties))
    run_java(format_storage, failure=FAILURE)
    options = (*SHORT_LIVED_JVM_OPTIONS, f"-XX:DumpLoadedClassList={classes}")
    broker = libs.command("kafka.Kafka", str(properties), options=options)
    with log.open("wb") as output, leashed(broker, stdout=output) as leash:
        try:
            wait_until_answering(node.bootstrap, alive=lambda: leash.poll() is None)
        except NotReady as error:
            raise BrokerFailed(f"a broker did not start ({error}):\n{log_tail(log.read_text())}") from error
    whole_lines, _, _ = classes.read_text(encoding="utf-8").rpartition("\n")  # it was killed, perhaps within a line
    classes.write_text(whole_lines + "\n", encoding="utf-8")
    return classes


def _dump(libs: Libs, classes: Path) -> None:
    unfinished = libs.class_archive.with_suffix(f".{os.getpid()}")
    options = ("-XX:+UseSerialGC", f"-XX:SharedClassListFile={classes}", f"-XX:SharedArchiveFile={unfinished}")
    try:
        run_java([str(libs.java), "-Xshare:dump", *options, "-cp", libs.class_path], failure=FAILURE)
        unfinished.rename(libs.class_archive)
    finally:
        unfinished.unlink(missing_ok=True)
