"""Pictures of the rooms and their imports, as Mermaid. GitHub draws them.

A room is a top-level folder or file, and in coordinator/, replay/ and events/ also one of the second level. An arrow
means that a room imports another. Arrows that follow from others are left out: given a -> b -> c, a -> c is not drawn.
Circular imports are an error, so all arrows point down.
"""

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Final

import grimp

from muster.cli import COMMANDS
from tests.architecture.walks import JOIN_GROUP, TAKEOVER, WHY

PACKAGE: Final = "muster"
RULES: Final = "coordinator/group"
"""Also in the picture of the whole: of coordinator/, replay/ uses this room alone."""

WORDS: Final[Mapping[str, Mapping[str, str]]] = {
    "": {
        "admin": "API for administrators",
        "cli": "muster, the command",
        "coordinator": "the server",
        RULES: "Kafka's rules, pure",
        "drills": "failover exercises",
        "durations": "30s, 5m, 1h30m",
        "events": "events, state, logs",
        "ranges": "0-3, 7",
        "replay": "why groups rebalanced",
        "schemas": "Avro schemas",
        "terminal": "the console",
        "variables": "MUSTER_* variables",
    },
    "coordinator": {
        "assembly": "parts of both modes",
        "client": "muster members, groups, log, status",
        "clock": "monotonic and wall time",
        "cluster": "nodes and topics shown to clients",
        "garbage": "Python's garbage collector",
        "group": "Kafka's rules, pure",
        "load": "turns, quotas",
        "log_settings_watch": "settings of the event topic",
        "log_throttle": "repeated log lines",
        "net": "sockets, frames, memory",
        "not_served": "answers that clients retry",
        "observability": "metrics, logs, health",
        "offsets": "committed offsets",
        "open_files": "limit of open files",
        "partition_sharing": "one process among several",
        "partition_reading": "reading a partition",
        "peers": "the other processes",
        "principals": "unknown principals",
        "processes": "serve --processes",
        "random_uuids": "ids of members",
        "runtime": "partitions, takeover, outbox, timers",
        "serve": "the process, standalone",
        "serve_cli": "muster serve",
        "service": "what wire needs of the server",
        "settings": "every setting",
        "sidecar": "in front of a cluster",
        "standalone": "without a cluster",
        "foreign_records": "foreign records",
        "tasks": "background tasks",
        "topics": "--topic",
        "upstream": "connections to the cluster, shadows",
        "wire": "Kafka's messages",
    },
    "events": {
        "avro": "codec",
        "causes": "why an event happened",
        "connection": "a member's last connection",
        "consumer_protocol": "subscriptions, assignments",
        "damage": "what of a broken group is readable",
        "events": "one class per type",
        "evolve": "the only way to change state",
        "ids": "types of ids",
        "kafka": "the way to a Kafka cluster",
        "keys": "keys of records",
        "loading": "reads a partition",
        "log": "memory, SQLite, Kafka",
        "near_names": "did you mean",
        "ownership": "why a partition changed hands",
        "partitioner": "the partition of a group",
        "projector": "folds records into groups",
        "records": "keys and values",
        "snapshot": "state as bytes",
        "state": "a group and its members",
        "steps": "work that can pause",
        "tables": "dictionaries with versions",
        "varints": "Avro's integers",
    },
    "replay": {
        "archive": "a log kept for good",
        "cli": "muster replay",
        "commands": "read, fold, render",
        "comparing_cli": "options of diff, whatif, verify",
        "fleet": "every group, as tables",
        "form": "table, JSON, Markdown",
        "garbage": "Python's garbage collector",
        "history": "what happened to a group",
        "html": "base and chart of pages",
        "incidents": "kinds, evidence, cost",
        "logs": "reads logs and exports",
        "packed": "values in little room",
        "progress": "a progress bar",
        "rebalances": "causes, phases, moves",
        "render": "tables, JSON, Markdown",
        "report": "a group as an HTML page",
        "rerun": "history through the rules again",
        "results": "one result per command",
        "text": "nouns, times",
        "verify": "checks a whole log",
        "whatif": "other settings",
    },
}
"""The words of each room in its picture. A room without words is an error, and so are words without a room."""

Imports = Mapping[str, frozenset[str]]


class Circle(Exception):
    """Rooms that import each other; the message names them."""


def whole() -> str:
    """The picture of the top."""
    return _picture("", {})


def coordinator() -> str:
    """The picture of coordinator/, with the rooms that a JoinGroup passes."""
    return _picture("coordinator", {"join": JOIN_GROUP.rooms, "takeover": TAKEOVER.rooms - JOIN_GROUP.rooms})


def events() -> str:
    """The picture of events/."""
    return _picture("events", {"join": JOIN_GROUP.rooms, "takeover": TAKEOVER.rooms - JOIN_GROUP.rooms})


def replay() -> str:
    """The picture of replay/, with the rooms that a `why` passes."""
    return _picture("replay", {"why": WHY.rooms})


def _picture(top: str, passed: Mapping[str, frozenset[str]]) -> str:
    return drawn(imports_within(top), WORDS[top], {name: _within(rooms, top) for name, rooms in passed.items()})


def _within(rooms: Iterable[str], top: str) -> frozenset[str]:
    return frozenset(room.removeprefix(f"{top}/") for room in rooms if room.startswith(f"{top}/"))


@cache
def _graph() -> grimp.ImportGraph:
    graph = grimp.build_graph(PACKAGE, cache_dir=None)
    for module, _ in COMMANDS.values():  # the command line imports them when they are asked for
        graph.add_import(importer=f"{PACKAGE}.cli", imported=module.partition(":")[0])
    return graph


def imports_within(top: str) -> Imports:
    """The rooms at the top, or in one of its folders, and which other ones of them each imports."""
    graph = _graph()
    rooms = {module: _room(module, top) for module in graph.modules}
    found: dict[str, set[str]] = {room: set() for room in rooms.values() if room is not None}
    for module, room in rooms.items():
        if room is not None:
            imported = (rooms[each] for each in graph.find_modules_directly_imported_by(module))
            found[room].update(each for each in imported if each not in (None, room))
    return {room: frozenset(found[room]) for room in sorted(found)}


def _room(module: str, top: str) -> str | None:
    """The room of a module in the picture of `top`; None if it is in none."""
    names = module.split(".")[1:]
    if not top:
        is_program = names in ([], ["__main__"])
        return None if is_program else RULES if "/".join(names[:2]) == RULES else names[0]
    return names[1] if len(names) > 1 and names[0] == top else None


def drawn(imports: Imports, words: Mapping[str, str], passed: Mapping[str, frozenset[str]]) -> str:
    """The picture as Mermaid. Raises Circle."""
    assert imports.keys() == words.keys(), (
        f"rooms without words or words without rooms: {imports.keys() ^ words.keys()}"
    )
    lines = ["```mermaid", "flowchart TB"]
    lines += [f'    {_id(room)}["<b>{room}</b><br>{words[room]}"]' for room in imports]
    for room, direct in reduced(imports).items():
        lines += [f"    {_id(room)} --> {_id(each)}" for each in sorted(direct)]
    for name, rooms in passed.items():
        if rooms:
            lines += [f"    classDef {name} {_STYLES[name]}", f"    class {','.join(map(_id, sorted(rooms)))} {name}"]
    return "\n".join([*lines, "```"]) + "\n"


_STYLES: Final = {
    "join": "fill:#cfe8ff,stroke:#1f6feb,color:#111",
    "takeover": "fill:#ffe3c2,stroke:#bc6c00,color:#111",
    "why": "fill:#d6f5d6,stroke:#2e7d32,color:#111",
}


def _id(room: str) -> str:
    return f"r_{room.replace('/', '_')}"


def reduced(imports: Imports) -> Imports:
    """The imports without those that follow from others. Raises Circle."""
    behind: dict[str, frozenset[str]] = {}

    def reach(room: str, path: tuple[str, ...]) -> frozenset[str]:
        if room in path:
            raise Circle(" -> ".join((*path[path.index(room) :], room)))
        if room not in behind:
            behind[room] = imports[room].union(*(reach(each, (*path, room)) for each in imports[room]))
        return behind[room]

    for room in imports:
        reach(room, ())
    return {
        room: frozenset(direct - frozenset().union(*(behind[each] for each in direct)))
        for room, direct in imports.items()
    }
