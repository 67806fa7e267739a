"""The answers of `muster replay` to a damaged log, and a verdict on each.

Damage that SQLite, the note beside the file or the events themselves show is reported, with exit code 2 or 3. With any
other exit code the answer must be that of the undamaged log. The exception are bits within a value that turn it into
another valid value: nothing in a SQLite file shows that.
"""

import asyncio
import random
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import msgspec
from typer.testing import CliRunner

from muster.events.log.url import open_log
from muster.replay.cli import app
from muster.replay.commands.opening import CANNOT_READ, DAMAGED
from tests.damage.damages import UNSEEN, damage
from tests.replay.stories import a_night
from tests.replay.written import PARTITIONS, script, write

COMMANDS: Final[Sequence[Sequence[str]]] = (
    ("groups", "--format", "jsonl"),
    ("why", "orders", "--all", "--format", "jsonl"),
    ("history", "orders", "--format", "jsonl"),
    ("state", "orders", "--at", "2026-11-21T03:20:00Z"),
    ("digest", "--since", "2026-11-21T00:00:00Z", "--format", "json"),
    ("verify",),
)
OTHER_GROUPS: Final = 30
ENV: Final = {"COLUMNS": "140", "TERM": "dumb"}


class BadAnswer(Exception):
    """A wrong answer for a damaged log; the message says for which."""


class Answer(msgspec.Struct, frozen=True):
    exit_code: int
    stdout: str
    stderr: str
    error: BaseException | None


def answer_of(command: Sequence[str], folder: Path) -> Answer:
    """The answer to a command on the folder's log, without the folder's name."""
    result = CliRunner().invoke(app, [*command, "--log", f"sqlite:///{folder / 'muster.db'}"], env=ENV)
    error = None if isinstance(result.exception, SystemExit) else result.exception
    return Answer(result.exit_code, result.stdout.replace(str(folder), ""), result.stderr, error)


@contextmanager
def whole_logs() -> Iterator[Mapping[str, Path]]:
    """The folders of two logs with one history: the owner of one closed it, that of the other was killed."""
    with TemporaryDirectory(prefix="muster-damage-") as name:
        folders = {state: Path(name, state) for state in ("closed", "killed")}
        for folder in folders.values():
            folder.mkdir()
        asyncio.run(_write(**folders))
        yield folders


async def _write(closed: Path, killed: Path) -> None:
    others = [script(f"group-{number}").created() for number in range(OTHER_GROUPS)]
    log = open_log(f"sqlite:///{closed / 'muster.db'}", partitions=PARTITIONS)
    await log.open()
    await write(log, [a_night(), *others])
    _copy(closed, killed)
    await log.close()


def _copy(folder: Path, to: Path) -> None:
    for file in folder.iterdir():
        if not file.name.endswith("-shm"):  # created again
            shutil.copy(file, to)


def play(seeds: Iterable[int]) -> Counter[str]:
    """Damage a log for each seed, and ask all commands; returns how often they ended how. Raises BadAnswer."""
    outcomes = Counter[str]()
    with whole_logs() as folders:
        whole = {
            (state, command): answer_of(command, folder) for state, folder in folders.items() for command in COMMANDS
        }
        for seed in seeds:
            rng = random.Random(seed)
            state = rng.choice(sorted(folders))
            with TemporaryDirectory(prefix="muster-damaged-") as name:
                folder = Path(name)
                _copy(folders[state], folder)
                file, done = damage(rng, sorted(folder.glob("muster.db*")))
                for command in COMMANDS:
                    answer = answer_of(command, folder)
                    if wrong := _wrong(answer, whole[state, command], is_unseen=done in UNSEEN):
                        text = f"seed {seed}, {file} {done}, {' '.join(command)}: {wrong}"
                        raise BadAnswer(f"{text}\n{answer.stdout}{answer.stderr}") from answer.error
                    outcomes[f"exit code {answer.exit_code}"] += 1
    return outcomes


def _wrong(answer: Answer, whole: Answer, *, is_unseen: bool) -> str | None:
    if answer.error is not None:
        return f"{answer.error!r}"
    for line in answer.stderr.splitlines():
        if not line.startswith("muster replay: "):
            return f"says {line!r}"
    if answer.exit_code in (CANNOT_READ, DAMAGED):
        says_why = answer.stderr or "readable" in answer.stdout  # a finding of `verify`
        return None if says_why else "does not say why"
    if is_unseen and answer.exit_code in (0, whole.exit_code):
        return None
    same = (answer.exit_code, answer.stdout) == (whole.exit_code, whole.stdout)
    return None if same else f"exit code {answer.exit_code}, and not the answer of the whole log"
