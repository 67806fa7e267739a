"""Records histories of real clients for the tests: `python -m tests.replay.record_clients [SESSION ...]`.

Each session has a Muster of its own with a log in a file, consumer processes of some client families, and something
that is done to them. `data/` has the group's exported history (`SESSION.jsonl`) and the truth (`SESSION.truth.json`),
which the session writes while it acts, never from events. Some are cases of the judge with real clients
(`tests/judge/real`) in which it found something. Recording takes four minutes, and is done by hand when a client or the
log has changed. Five sessions that were played by hand behind a sidecar cannot be recorded here and stay as they are:
`duel`, `rolling-dynamic`, `net-cut`, `slow-leader-timeout` and `java-static-poll`.
"""

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import msgspec

from demo.members import GROUP
from muster.replay.text.times import instant
from tests.brokers.child import leashed, signal_group
from tests.brokers.java_tools import JavaTool, RunningTool, running_tool
from tests.clients.probe import until_stable
from tests.judge.real.case import draw, play
from tests.judge.real.given import Family
from tests.judge.real.service import GROUP_ID
from tests.muster_process import MusterProcess, running_muster, sqlite_log
from tests.replay.recorded import DATA, TRUTH, Done, Truth
from tests.replay.recorded_consumer import HEARTBEAT_MS, SESSION_MS, STALL_S, TOPIC

PARTITIONS: Final = 12
CONFIG: Final = {"group.initial.rebalance.delay.ms": "3000", "offsets.retention.check.interval.ms": "86400000"}
QUIET_S: Final = 8.0
JAVA: Final = "java"


class Session:
    """A group of real clients while it is recorded."""

    def __init__(self, name: str, muster: MusterProcess, stack: ExitStack) -> None:
        self.group = name
        self.muster = muster
        self.done: list[Done] = []
        self._stack = stack
        self._children: dict[str, subprocess.Popen[bytes] | RunningTool] = {}

    def did(self, what: str, kinds: tuple[str, ...], *processes: str) -> None:
        at = instant(time.time_ns() // 1_000_000)
        self.done.append(Done(what=what, kinds=kinds, processes=processes, at=at))

    def start(self, *names: str) -> None:
        """Start processes by client ids that begin with the library's name, and wait until all are members."""
        for name in names:
            library = name.rpartition("-")[0]
            self._children[name] = self._java(name) if library == JAVA else self._python(library, name)
        self.settle()

    def settle(self) -> None:
        until_stable(self.muster.bootstrap, self.group, members=len(self._children))
        time.sleep(QUIET_S)

    def stop(self, name: str) -> None:
        """Stop it with a signal that closes its consumer."""
        child = self._children.pop(name)
        self._signal(child, signal.SIGTERM)
        child.wait()

    def kill(self, name: str) -> None:
        """Kill it with kill -9."""
        child = self._children.pop(name)
        if isinstance(child, RunningTool):
            child.kill()
        else:
            assert child.stdin is not None
            child.stdin.close()  # its leash kills it
            child.wait()

    def stall(self, name: str) -> None:
        self._signal(self._children[name], signal.SIGUSR1)

    @staticmethod
    def _signal(child: "subprocess.Popen[bytes] | RunningTool", number: signal.Signals) -> None:
        if isinstance(child, RunningTool):
            child.signal(number)
        else:
            signal_group(child, number)

    def _python(self, library: str, name: str) -> "subprocess.Popen[bytes]":
        command = [sys.executable, "-m", "tests.replay.recorded_consumer", library, self.muster.bootstrap]
        return self._stack.enter_context(leashed([*command, self.group, name], stdout=subprocess.DEVNULL))

    def _java(self, name: str) -> RunningTool:
        configs = {
            "client.id": name,
            "session.timeout.ms": str(SESSION_MS),
            "heartbeat.interval.ms": str(HEARTBEAT_MS),
        }
        arguments = ["--bootstrap-server", self.muster.bootstrap, "--topic", TOPIC, "--group", self.group]
        for key, value in configs.items():
            arguments += ["--command-property", f"{key}={value}"]
        return self._stack.enter_context(running_tool(JavaTool.CONSOLE_CONSUMER, *arguments))


# ---- the sessions ---------------------------------------------------------------------------------------------------


def crash(session: Session) -> None:
    """One process of each family; aiokafka's is killed for good."""
    four = ("librdkafka-1", "kafka-python-1", "aiokafka-1", "java-1")
    session.did("all four start", ("start",), *four)
    session.start(*four)
    session.did("aiokafka-1 is killed", ("crash",), "aiokafka-1")
    session.kill("aiokafka-1")
    session.settle()


def poll_timeout(session: Session) -> None:
    """A process polls too late, leaves by itself and comes back."""
    three = ("librdkafka-1", "librdkafka-2", "librdkafka-3")
    session.did("all three start", ("start",), *three)
    session.start(*three)
    session.did(f"librdkafka-2 does not poll for {STALL_S:g} s", ("poll-timeout", "restart"), "librdkafka-2")
    session.stall("librdkafka-2")
    time.sleep(STALL_S + QUIET_S)
    session.settle()


def coordinator_restart(session: Session) -> None:
    """The coordinator is killed, and is back after 14 s, longer than the sessions."""
    three = ("librdkafka-1", "kafka-python-1", "java-1")
    session.did("all three start", ("start",), *three)
    session.start(*three)
    session.did("the coordinator is killed, for 14 s", ("coordinator-outage", "coordinator-change"))
    session.muster.kill()
    time.sleep(14)
    session.muster.start()
    time.sleep(2 * SESSION_MS / 1_000)
    session.settle()


def deployment(session: Session) -> None:
    """Three processes are closed and started again, one after another."""
    three = ("librdkafka-1", "aiokafka-1", "java-1")
    session.did("all three start", ("start",), *three)
    session.start(*three)
    session.did("all three are closed and started again, one after another", ("deployment",), *three)
    for name in three:
        session.stop(name)
        session.start(name)


SESSIONS: Final[dict[str, Callable[[Session], None]]] = {
    "crash": crash,
    "poll-timeout": poll_timeout,
    "coordinator-restart": coordinator_restart,
    "deployment": deployment,
}


JUDGED: Final = {
    "static-outage": ("coordinator-away", Family.LIBRDKAFKA, 0),
    "static-pause": ("coordinator-stopped", Family.LIBRDKAFKA, 156),
    "leader-asks-again": ("subscription-change", Family.KAFKA_PYTHON, 0),
}
"""Scenario, family and seed.

Static members that came back just after the coordinator had been killed or stopped used to be reported as a deployment,
and a leader that learned about a topic's partitions after it had assigned, as added partitions.
"""


DEMO: Final = (
    Done(
        what="four processes form a group",
        kinds=("start",),
        processes=("billing-0", "billing-1", "billing-2", "extra-1"),
    ),
    Done(
        what="the static members are restarted one by one",
        kinds=("deployment",),
        processes=("billing-0", "billing-1", "billing-2"),
    ),
    Done(what="kill -9 of the dynamic member", kinds=("crash",), processes=("extra-1",)),
    Done(what="a new dynamic member", kinds=("scale-up",), processes=("extra-2",)),
    Done(what="a second billing-1 is started by mistake", kinds=("restart",), processes=("billing-1",)),
    Done(what="kill -9 of the coordinator, which is started again", kinds=("coordinator-change",), processes=()),
)
"""The steps of `make demo`, which checks that they were done."""


def record_demo() -> None:
    with TemporaryDirectory(prefix="muster-") as directory:
        subprocess.run([sys.executable, "-m", "demo", "--keep", directory], check=True, stdout=subprocess.DEVNULL)
        keep("demo", f"sqlite:///{directory}/muster.db", Truth(group=GROUP, done=DEMO))


def record_judged(name: str) -> None:
    scenario, family, seed = JUDGED[name]
    with TemporaryDirectory(prefix="muster-") as directory:
        kept = Path(directory) / "kept"
        case = play(draw(seed, scenario, family), kept)
        done = tuple(
            Done(
                what=f"{scenario}: {truth.kind}",
                kinds=truth.kinds,
                processes=tuple(sorted(truth.culprits or ())),
                at=instant(truth.extent[0]),
            )
            for truth in case.truths
        )
        keep(name, sqlite_log(kept), Truth(group=GROUP_ID, done=done))


@contextmanager
def session_on(name: str, log: str) -> Iterator[Session]:
    with running_muster(log=log, topics=[f"{TOPIC}:{PARTITIONS}"], config=CONFIG) as muster, ExitStack() as stack:
        yield Session(name, muster, stack)
        muster.stop()  # before its consumers, so that their ends are not in the log


def record(name: str) -> None:
    with TemporaryDirectory(prefix="muster-") as directory:
        log = sqlite_log(Path(directory))
        with session_on(name, log) as session:
            SESSIONS[name](session)
        keep(name, log, Truth(group=name, done=tuple(session.done)))


def keep(name: str, log: str, truth: Truth) -> None:
    """Export the group's history, and write the truth beside it."""
    command = [sys.executable, "-m", "muster", "replay", "export", str(DATA / f"{name}.jsonl")]
    subprocess.run([*command, "--group", truth.group, "--log", log], check=True)
    written = msgspec.json.format(msgspec.json.encode(truth), indent=2)
    (DATA / f"{name}{TRUTH}").write_bytes(written + b"\n")


if __name__ == "__main__":
    for each in sys.argv[1:] or (*SESSIONS, *JUDGED, "demo"):
        if each == "demo":
            record_demo()
        elif each in JUDGED:
            record_judged(each)
        else:
            record(each)
