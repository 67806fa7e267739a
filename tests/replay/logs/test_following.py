"""Following a damaged SQLite file: the readable part and the damage are shown at once, appended events later."""

import asyncio
import sqlite3
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

import pytest

from muster.events.ids import GroupId
from muster.events.kafka.security import NOT_SECURED
from muster.events.keys import EntityKind, RecordKey, encode_key
from muster.events.log.base import LogMismatch
from muster.events.log.sqlite.log import SqliteEventLog
from muster.events.records import Record, Transition
from muster.replay.commands.opening import Source, opened
from muster.replay.history.items import Broken, Happened, Item
from muster.replay.logs.sources import from_the_beginning, items
from tests.replay.stories import a_night
from tests.replay.written import PARTITIONS, sqlite_log
from tests.waiting import until

PAGE_BYTES = 4_096
LEAF = 0x0A
FILLER: list[Transition] = [
    (Record(encode_key(RecordKey(f"g{number}", EntityKind.GROUP_CONFIG, "")), b"x" * 1_000),) for number in range(40)
]


def zero_leaf(path: Path, groups: Iterable[str]) -> None:
    """Zero the page of the first of these groups that is on a leaf of the tree."""
    content = bytearray(path.read_bytes())
    pages = (content.rindex(b"%s" % group.encode()) // PAGE_BYTES * PAGE_BYTES for group in groups)
    page = next(page for page in pages if content[page] == LEAF)
    content[page : page + PAGE_BYTES] = bytes(PAGE_BYTES)
    path.write_bytes(content)


@pytest.mark.parametrize("end", [False, True], ids=["in the middle", "at the end"])
async def test_a_damaged_file_is_followed_around_its_damage(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], end: bool
) -> None:
    """Its owner, which has the page in memory, does not notice and continues; what it writes later is shown."""
    night, path = a_night(), tmp_path / "muster.db"
    transitions = night.stored_transitions()
    half = len(transitions) // 2
    log = SqliteEventLog(path, partitions=PARTITIONS)
    await log.open()
    writer = await log.claim(night.partition)
    await writer.append([*transitions[:half], *FILLER])
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA wal_checkpoint(FULL)")
    zero_leaf(path, ["g39"] if end else ["g20", "g21"])
    reported: list[int] = []

    async def follow() -> None:
        async with opened(Source(url=f"sqlite:///{path}", security=NOT_SECURED), waits=True) as reading:
            async for item in items(reading, from_the_beginning(GroupId(night.group_id)), goes_on=True):
                assert not isinstance(item, Broken)
                if isinstance(item, Happened):
                    reported.append(item.event.seq)

    following = asyncio.create_task(follow())
    happened = [read for read in night.reads if isinstance(read, Happened)]
    events = [each.event.seq for each in happened]
    first = sum(each.position.offset < sum(map(len, transitions[:half])) for each in happened)
    await until(lambda: len(reported) == first, "what can be read is told")
    result: list[str] = []

    def is_said() -> bool:
        result.extend(capsys.readouterr().err.splitlines())
        return bool(result)

    await until(is_said, "the damage is told")
    assert f"the event log {path} is damaged" in result[0]
    await writer.append(transitions[half:])
    await until(lambda: len(reported) == len(events), "what is appended is told")
    assert reported == events
    following.cancel()
    await asyncio.gather(following, return_exceptions=True)
    result.extend(capsys.readouterr().err.splitlines())
    assert len(result) == 1
    await log.close()


@pytest.mark.parametrize("what", ["no longer exists", "was replaced by another file"])
async def test_a_file_removed_while_it_is_followed_ends_the_command(tmp_path: Path, what: str) -> None:
    """It would never grow; its write-ahead log comes and goes with the owner, which does not end it."""
    night, path = a_night(), tmp_path / "muster.db"
    source = Source(url=await sqlite_log(path, night), security=NOT_SECURED)
    reported: list[Item] = []

    async def follow() -> None:
        async with opened(source, waits=True) as reading:
            async for item in items(reading, from_the_beginning(GroupId(night.group_id)), goes_on=True):
                reported.append(item)  # noqa: PERF401 -- one after another, as they come

    following = asyncio.create_task(follow())
    await until(lambda: len(reported) >= len(night.reads), "all is told")
    await sqlite_log(path)
    if what == "no longer exists":
        path.unlink()
    else:
        await sqlite_log(tmp_path / "other.db")
        (tmp_path / "other.db").replace(path)
    with pytest.raises(LogMismatch, match=f"{path} {what}: "):
        await asyncio.wait_for(following, timeout=30)
