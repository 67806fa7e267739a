"""Walks through the files: the functions that a request passes, in this order.

The tests start `muster` and trace its calls: each function is called, after the one before it.
"""

from collections.abc import Iterable
from itertools import groupby
from typing import Final, NamedTuple

OPENED: Final = ("coordinator", "events", "replay")


class Step(NamedTuple):
    file: str
    function: str
    words: str
    """Its words on the page."""


class Walk(NamedTuple):
    steps: tuple[Step, ...]

    @property
    def rooms(self) -> frozenset[str]:
        """The rooms on the way."""
        return frozenset(room_of(step.file) for step in self.steps)


def room_of(file: str) -> str:
    """The folder or file of the second level in an opened folder, else that at the top."""
    names = file.removeprefix("src/muster/").removesuffix(".py").split("/")
    return "/".join(names[:2]) if names[0] in OPENED else names[0]


def way(walk: Walk) -> str:
    """The rooms in their order, as a line."""
    rooms = [room for room, _ in groupby(_place(step.file) for step in walk.steps)]
    return " → ".join(f"`{room}`" for room in rooms) + "\n"


def _place(file: str) -> str:
    """The path of its room: a folder, or the file itself."""
    room = room_of(file)
    return file if file.endswith(f"{room}.py") else f"{room}/"


def table(walk: Walk) -> str:
    """A row for each step."""
    rows = [
        f"| {number} | `{step.file}` | `{step.function}` | {step.words} |" for number, step in enumerate(walk.steps, 1)
    ]
    return "\n".join(["| | File | Function | |", "|---|---|---|---|", *rows]) + "\n"


def page_of(walk: Walk) -> str:
    """The part of the page about a walk."""
    return f"{way(walk)}\n{table(walk)}"


def lacking(walk: Walk, calls: Iterable[tuple[str, str]]) -> list[Step]:
    """The steps that were not called, each after the one before it."""
    left = list(walk.steps)
    for call in calls:
        if left and call == (left[0].file, left[0].function):
            left.pop(0)
    return left


JOIN_GROUP: Final = Walk(
    (
        Step(
            "coordinator/net/client_socket.py", "ClientSocket.data_received", "asyncio hands over what the client sent"
        ),
        Step(
            "coordinator/net/frames.py",
            "Connection.next_request",
            "cut the next request from the bytes, check its length",
        ),
        Step("coordinator/standalone/client_connection.py", "ClientConnection._handle", "one request at a time"),
        Step("coordinator/wire/dispatch.py", "dispatch", "find the API by key and version"),
        Step("coordinator/wire/messages.py", "MessageVersion.read", "decode Kafka's message"),
        Step(
            "coordinator/wire/join_group.py", "decode", "make the command `JoinGroup` of it, the same for all versions"
        ),
        Step("coordinator/runtime/runtime.py", "Runtime.submit", "find the partition of the group"),
        Step(
            "coordinator/runtime/partition/partition.py",
            "Partition.submit",
            "find the group; the request waits for its reply",
        ),
        Step(
            "coordinator/runtime/partition/command_processor.py",
            "CommandProcessor._decide",
            "take the group's next command",
        ),
        Step("coordinator/group/decide.py", "decide", "the table of commands: each with its function"),
        Step("coordinator/group/join.py", "join_group", "Kafka's rules for a join"),
        Step("events/evolve.py", "apply", "apply each event to the decision's copy of the group"),
        Step("events/avro/codec.py", "records_of", "encode the events as Avro records"),
        Step(
            "coordinator/runtime/partition/outbox.py", "Outbox.submit", "hold the replies until the records are durable"
        ),
        Step("events/log/sqlite/log.py", "SqliteLogWriter.append", "append them; in Kafka: `events/log/kafka/`"),
        Step("events/log/sqlite/statements.py", "append", "write to disk, in a thread"),
        Step(
            "coordinator/runtime/partition/command_processor.py",
            "CommandProcessor._take_effect",
            "replace the group by the changed copy",
        ),
        Step(
            "coordinator/runtime/partition/deadlines.py",
            "Deadlines._fired",
            "the join phase ends: decide and append again",
        ),
        Step("coordinator/group/timeouts.py", "run_deadline", "the rules for a deadline"),
        Step(
            "coordinator/group/rebalance.py", "complete_join_phase", "the next generation, its leader and its protocol"
        ),
        Step("coordinator/runtime/partition/outbox.py", "Outbox.submit", "durable first, as above"),
        Step(
            "coordinator/runtime/partition/waiting.py",
            "WaitingRequests.release",
            "hand each waiting request its outcome",
        ),
        Step("coordinator/wire/join_group.py", "encode", "make the response of the outcome"),
        Step(
            "coordinator/net/client_socket.py",
            "ClientSocket.answered",
            "put it behind the responses to earlier requests",
        ),
        Step("coordinator/net/flow.py", "send_all", "write to the socket"),
    )
)

TAKEOVER: Final = Walk(
    (
        Step("coordinator/assembly.py", "take_over", "the process has started"),
        Step(
            "coordinator/runtime/runtime.py", "Runtime.assign", "the partitions; `coordinator/peers/` shares them out"
        ),
        Step(
            "coordinator/runtime/ownership/owned_partitions.py",
            "OwnedPartitions.assign",
            "take new ones, release others",
        ),
        Step(
            "coordinator/runtime/ownership/takeover/partition_takeover.py",
            "Takeovers.take_over",
            "the steps below, for one partition",
        ),
        Step("coordinator/runtime/ownership/takeover/claim_partition.py", "claim_partition", "become its owner"),
        Step(
            "events/log/sqlite/log.py",
            "SqliteEventLog.claim",
            "a new epoch: the log refuses appends of the former owner",
        ),
        Step("coordinator/runtime/ownership/fencing.py", "fence", "append `CoordinatorElected`"),
        Step("coordinator/runtime/ownership/takeover/read_groups.py", "read_groups", "read the groups"),
        Step("coordinator/partition_reading.py", "read_to_fence", "read the partition up to that record"),
        Step("events/loading.py", "Loading.read", "skip records that later ones replace"),
        Step("events/projector.py", "Projector.feed", "fold the others into groups"),
        Step("events/evolve.py", "apply", "by the same function as in a decision"),
        Step(
            "coordinator/runtime/ownership/takeover/claim_offsets.py",
            "claim_offsets",
            "the committed offsets of its groups",
        ),
        Step("coordinator/offsets/sqlite.py", "SqliteOffsetStore.claim", "from disk"),
        Step(
            "coordinator/runtime/ownership/takeover/ownership_end.py",
            "note_former_owner",
            "find out why the former owner ended, for `why`",
        ),
        Step("coordinator/runtime/ownership/takeover/write_ready.py", "write_ready", "append `CoordinatorReady`"),
        Step(
            "coordinator/runtime/ownership/takeover/resume_groups.py",
            "resume_groups",
            "sessions and phases of the groups go on",
        ),
        Step("coordinator/runtime/partition/partition.py", "Partition.add_loaded_groups", "requests find them"),
    )
)

WHY: Final = Walk(
    (
        Step("src/muster/cli.py", "_Commands.resolve_command", "import the command that is asked for"),
        Step("replay/cli.py", "why_command", "the options"),
        Step("replay/commands/why.py", "why", "read, fold, render: the steps below"),
        Step("replay/logs/opening.py", "open_for_reading", "open the log or the export"),
        Step("replay/logs/sources.py", "items", "the events of the group, one by one"),
        Step("replay/logs/reading.py", "Reading.chunks", "the records of its partition"),
        Step("events/log/sqlite/log.py", "SqliteEventLog.read_wanted", "from disk"),
        Step("replay/logs/sources.py", "read_record", "decode a record"),
        Step("replay/results/why.py", "WhyFold.feed", "feed the folds with each event"),
        Step("replay/history/transitions.py", "Transitions.feed", "the group before and after the event"),
        Step("events/evolve.py", "evolve", "by the same function as in the coordinator"),
        Step("replay/rebalances/timeline.py", "Timeline.feed", "rebalances: what started each, its phases, what moved"),
        Step("replay/incidents/grouping.py", "incidents_of", "share the evidence of an episode out among the kinds"),
        Step(
            "replay/incidents/kinds/scale_up.py",
            "find",
            "one kind of incident: `replay/incidents/kinds/` has a file for each",
        ),
        Step("replay/results/why.py", "NewestIncidents.take", "keep the incidents that are shown"),
        Step("replay/render/incident_streams.py", "_TableStream.feed", "print them as they come"),
        Step("replay/render/incident_table.py", "print_incident", "headline, rebalances, evidence, cost, advice"),
    )
)
