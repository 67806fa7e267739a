"""The parts of pages that the program writes: README's answer of `why`, settings, exit codes, the architecture.

python -m tests.written_pages     writes them again
"""

import asyncio
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, Final, Literal, get_args, get_origin

import typer.main
from pydantic.fields import FieldInfo
from typer.testing import CliRunner

from muster.cli import COMMANDS
from muster.coordinator.group.settings import INT32_MAX
from muster.coordinator.settings.kafka_settings import KAFKA_SETTINGS
from muster.coordinator.settings.options import PANELS, default_of, shown_of
from muster.coordinator.settings.setting_sources import flag
from muster.coordinator.settings.settings import Settings
from muster.durations import written as duration
from muster.events.kafka.security import PROPERTIES
from muster.replay.cli import app as replay
from tests.architecture import pictures, walks
from tests.replay.stories import a_night
from tests.replay.written import sqlite_log

ROOT: Final = Path(__file__).parents[1]
README: Final = ROOT / "README.md"
CONFIGURATION: Final = ROOT / "docs" / "configuration.md"
ARCHITECTURE: Final = ROOT / "docs" / "architecture.md"
WHY: Final = ("why", "orders", "--at", "2026-11-21T02:13:31")
"""The question of the README, about a crash in the night that the tests of replay record."""
COLUMNS: Final = "120"
CODES: Final = re.compile(r"Exit codes: (.+?\.)(?= \S+ has more|\n\n|$)", re.DOTALL)
CODE: Final = re.compile(r"(?:^|; )(\d+) ")


def answer() -> str:
    """The answer of `muster replay why`, below its command."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "muster.db"
        asyncio.run(sqlite_log(log, a_night()))
        arguments = [*WHY, "--log", f"sqlite:///{log}", "--tz", "UTC"]
        result = CliRunner().invoke(replay, arguments, env={"COLUMNS": COLUMNS, "TERM": "dumb"})
    assert result.exit_code == 0, result.output
    return f"```\n{result.stdout.strip()}\n```\n"


def settings() -> str:
    """A table for each heading of `muster serve --help`, one for Kafka's settings, and the properties."""
    own = {name: field for name, field in Settings.model_fields.items() if name not in KAFKA_SETTINGS.values()}
    parts = []
    for panel in PANELS:
        rows = {f"`{flag(name)}`": field for name, field in own.items() if shown_of(field).panel == panel}
        parts.append(f"### {panel}\n\n{_table(rows)}")
    kafkas = {f"`{name}`": Settings.model_fields[field] for name, field in KAFKA_SETTINGS.items()}
    parts.append(f"### Kafka's settings (`--config`)\n\n{_table(kafkas)}")
    listed = ", ".join(f"`{name}`" for name in PROPERTIES)
    parts.append(f"### Client properties (`--upstream-config`, `--kafka-config`)\n\n{listed}\n")
    return "\n".join(parts)


def _table(rows: Mapping[str, FieldInfo]) -> str:
    lines = ["| Setting | Value | Default | |", "|---|---|---|---|"]
    for name, field in rows.items():
        text, _, named = (field.description or "").replace("|", "\\|").partition(" [default: ")
        default = named.rstrip("]") or default_of(field)
        lines.append(f"| {name} | {_value_of(field, name)} | {default.replace(f'{INT32_MAX}', 'no limit')} | {text} |")
    return "\n".join(lines) + "\n"


def _value_of(field: FieldInfo, name: str) -> str:
    """The form of its value, and its limits."""
    is_duration = re.search(r"[.-]ms`$", name) is not None
    text = duration if is_duration else "{:,}".format
    limits = {type(each).__name__: each for each in field.metadata}
    form = "duration" if is_duration else (shown_of(field).metavar or _type_of(field.annotation)).replace("|", ", ")
    if "Ge" in limits:
        form += f", from {text(limits['Ge'].ge)}"
    if "Le" in limits and limits["Le"].le < INT32_MAX:
        form += f" to {text(limits['Le'].le)}"
    return form


def _type_of(annotation: Any) -> str:
    if get_origin(annotation) is Literal:
        return ", ".join(get_args(annotation))
    named = [each for each in get_args(annotation) if each is not type(None)]
    kind = named[0] if named else annotation
    return {int: "number", str: "text", bool: "switch", Path: "path"}.get(kind, "text")


def exit_codes() -> str:
    """A row for each command whose help names its exit codes; those of a group of commands hold for all of them."""
    rows = ["| Command | Code | |", "|---|---|---|"]
    for name, text in sorted(_codes_by_command()):
        cells = CODE.split(text)[1:]
        rows += [
            f"| {f'`muster {name}`' if first else ''} | {code} | {meaning.strip().rstrip('.;')} |"
            for first, code, meaning in zip([True] + [False] * len(cells), cells[::2], cells[1::2], strict=False)
        ]
    return "\n".join(rows) + "\n"


def _codes_by_command() -> Iterator[tuple[str, str]]:
    for name, (place, _) in COMMANDS.items():
        module, _, attribute = place.partition(":")
        yield from _codes_of(name, typer.main.get_command(getattr(import_module(module), attribute)))


def _codes_of(name: str, command: Any) -> Iterator[tuple[str, str]]:
    found = CODES.search(" ".join((command.help or "").split(" ")))
    if found:
        yield name, " ".join(found[1].split())
    for each, inner in getattr(command, "commands", {}).items():
        yield from _codes_of(f"{name} {each}", inner)


PARTS: Final[tuple[tuple[Path, str, Callable[[], str]], ...]] = (
    (README, "an answer of why", answer),
    (CONFIGURATION, "every setting", settings),
    (CONFIGURATION, "every exit code", exit_codes),
    (ARCHITECTURE, "the whole", pictures.whole),
    (ARCHITECTURE, "coordinator", pictures.coordinator),
    (ARCHITECTURE, "events", pictures.events),
    (ARCHITECTURE, "replay", pictures.replay),
    (ARCHITECTURE, "a JoinGroup", partial(walks.page_of, walks.JOIN_GROUP)),
    (ARCHITECTURE, "a takeover", partial(walks.page_of, walks.TAKEOVER)),
    (ARCHITECTURE, "a why", partial(walks.page_of, walks.WHY)),
)


def written(page: str, name: str, part: str) -> str:
    """The page with this part between its marks."""
    return re.sub(rf"(?<=<!-- {name} -->\n).*?(?=<!-- end -->)", lambda _: part, page, count=1, flags=re.DOTALL)


if __name__ == "__main__":
    for path, name, make in PARTS:
        path.write_text(written(path.read_text(encoding="utf-8"), name, make()), encoding="utf-8")
