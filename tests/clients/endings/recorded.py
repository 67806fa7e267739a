"""The facts of the last run, in a file with a fixed order."""

from collections.abc import Iterable
from pathlib import Path
from typing import Final

import msgspec

from tests.clients.endings.facts import Fact
from tests.clients.endings.given import Act, Family, Way

RECORDED: Final = Path(__file__).with_name("recorded.json")

Key = tuple[int, int, int, bool]


def read_facts(path: Path = RECORDED) -> list[Fact]:
    return msgspec.json.decode(path.read_bytes(), type=list[Fact]) if path.exists() else []


def write_facts(found: Iterable[Fact], path: Path = RECORDED) -> None:
    """New facts replace earlier ones of the same trial."""
    facts = {key_of(each): each for each in (*read_facts(path), *found)}
    lines = [msgspec.json.encode(facts[key]).decode() for key in sorted(facts)]
    path.write_text("[\n" + ",\n".join(lines) + "\n]\n", encoding="utf-8")


def key_of(fact: Fact) -> Key:
    return list(Way).index(fact.way), list(Family).index(fact.family), list(Act).index(fact.act), fact.is_static
