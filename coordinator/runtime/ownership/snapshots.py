"""Snapshots of all partitions in a folder, so that a process that restarts only reads what is new.

Decides when a partition is saved and to which file, and logs snapshots that cannot be used. The format is in
events/snapshot.py.

Every partition is saved once a minute: a followed one as it was read (followed_topic.py), an owned one in its durable
state between two writes. A snapshot is built in slices and written to disk by a thread: to a new file that replaces the
last one when it is complete. Its content does not depend on the process that wrote it, so processes may share a folder.
"""

import asyncio
import os
import tempfile
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import msgspec
import structlog

from muster.coordinator.log_throttle import LogThrottle
from muster.coordinator.partition_reading import Standby
from muster.coordinator.runtime.ownership.followed_topic import Standbys, deletions_kept_ms
from muster.coordinator.runtime.ownership.owned_partition import OwnedPartition
from muster.coordinator.runtime.partition.owner import Owner
from muster.events.loading import LastRead, Loading
from muster.events.log.base import FollowedLog, LogError
from muster.events.records import EventsError
from muster.events.snapshot import (
    SnapshotOf,
    Unpacking,
    UnusableSnapshot,
    head_of,
    unpack_frames,
    usable_head,
    write_snapshot,
)

log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)

CUT_TIMEOUT_S: Final = 5.0
"""How long to wait for a partition to be between two writes; after that it is left until the next round."""
REST_TIMES: Final = 20
"""The pause is this many times as long as saving took, if that is longer than the interval."""

InThread = Callable[..., Awaitable[Any]]


class SnapshotFolder(msgspec.Struct, frozen=True, kw_only=True):
    """The folder of the snapshots, and how often they are written."""

    folder: Path
    interval_ms: int

    def prepare(self) -> None:
        """Create the folder if it is missing, and check that it is writable. Raises OSError."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=self.folder):
            pass


class Snapshots:
    """Saves and loads snapshots of the `owned` partitions. `in_thread` runs blocking disk I/O."""

    def __init__(
        self,
        owner: Owner,
        event_log: FollowedLog,
        at: SnapshotFolder,
        *,
        owned: Callable[[], Mapping[int, OwnedPartition]],
        in_thread: InThread = asyncio.to_thread,
    ) -> None:
        self._owner = owner
        self._log = event_log
        self._at = at
        self._owned = owned
        self._in_thread = in_thread
        self._throttle = LogThrottle(owner.clock.monotonic_ms)
        self.standbys: Standbys[Loading] | None = None
        """The partitions that are followed, if any."""

    def file_of(self, number: int) -> Path:
        """The file of a partition's snapshot."""
        return self._at.folder / f"{self._owner.event_log.location}-{number}.snapshot"

    async def load(self, number: int) -> Standby[Loading] | None:
        """Return the state in a partition's snapshot, to continue reading from there; None: there is no usable one."""
        try:
            data = await self._in_thread(_read, self.file_of(number))
            if data is None:
                return None
            return await self._unpacked(number, data)
        except UnusableSnapshot as unusable:
            self._log_unused(number, unusable.kind, str(unusable))
        except OSError as error:
            self._log_unused(number, "disk", f"it cannot be read: {error.strerror}")
        except Exception as bug:
            log.error("snapshot not used because of a bug in Muster, please report it", exc_info=bug)
        return None

    async def keep(self) -> None:
        """Save all partitions repeatedly, forever."""
        interval_s, now_s = self._at.interval_ms / 1000, asyncio.get_running_loop().time
        while True:
            await asyncio.sleep(interval_s)
            since_s = now_s()
            await self.save_all()
            await asyncio.sleep(max(0.0, REST_TIMES * (now_s() - since_s) - interval_s))

    async def save_all(self) -> None:
        """Save each partition that can be saved now; failures are logged, and retried in the next round."""
        for number in range(self._owner.event_log.partitions):
            try:
                await self._save(number)
            except (LogError, EventsError, TimeoutError) as error:
                log.debug("could not save a partition", partition=number, error=str(error))
            except OSError as error:
                if self._throttle.due("write") is not None:
                    log.warning(
                        "could not write a snapshot: after a restart, more of the event log has to be read",
                        file=str(self.file_of(number)),
                        error=error.strerror or str(error),
                    )
            except Exception as bug:
                log.error("no snapshot written because of a bug in Muster, please report it", exc_info=bug)
            else:
                self._throttle.end("write")

    # ---- reading -------------------------------------------------------------------------------------

    async def _unpacked(self, number: int, data: bytes) -> Standby[Loading]:
        frames: list[bytes] = await self._in_thread(unpack_frames, data)
        kept_ms, wall_ms = deletions_kept_ms(self._log), self._owner.clock.wall_ms()
        head = usable_head(frames[0], self._of(number), wall_ms=wall_ms, deletions_kept_ms=kept_ms)
        unpacking = Unpacking(head)
        for frame in frames[1:]:
            unpacking.add(frame)
            await asyncio.sleep(0)
        loading = unpacking.loading(self._owner.foreign_records.reading(number))
        at_end_ms = self._owner.boot_ms() - (wall_ms - head.at_end_ms)
        return Standby(
            loading=loading,
            at_end_ms=at_end_ms,
            boot_ms=self._owner.boot_ms,
            deletions_kept_ms=kept_ms,
            is_of_wall_clock=True,
        )

    def _log_unused(self, number: int, kind: str, reason: str) -> None:
        if self._throttle.due(kind) is not None:  # there may be one for each partition
            log.warning(
                "snapshot not used, reading the event log instead",
                partition=number,
                file=str(self.file_of(number)),
                reason=reason,
            )

    def _of(self, number: int) -> SnapshotOf:
        event_log = self._owner.event_log
        return SnapshotOf(
            log=event_log.identity,
            partition=number,
            partitions=event_log.partitions,
            format_level=event_log.format_level,
        )

    # ---- writing -------------------------------------------------------------------------------------

    async def _save(self, number: int) -> None:
        ownership = self._owned().get(number)
        if ownership is not None:
            at_end_ms = self._owner.clock.wall_ms()
            loading = await self._cut(ownership)
            if loading is not None:
                await self._write(number, loading, at_end_ms, is_still=lambda: True)
        elif self.standbys is not None:
            async with self.standbys.resting(number) as standby:
                if standby is not None:
                    age_ms = self._owner.boot_ms() - standby.at_end_ms
                    at_end_ms = self._owner.clock.wall_ms() - age_ms
                    still = self.standbys.is_still
                    await self._write(number, standby.loading, at_end_ms, is_still=lambda: still(number, standby))

    async def _cut(self, ownership: OwnedPartition) -> Loading | None:
        """Take the state of an owned partition between two writes, and find the record before it."""
        async with asyncio.timeout(CUT_TIMEOUT_S):
            projector = await ownership.durable_state()
        if projector is None:
            return None
        number, end = ownership.partition.number, projector.next_offset
        async for chunk in self._owner.event_log.read(number, start=end - 1, end=end):
            last = LastRead(chunk[-1].offset, chunk[-1].timestamp_ms, chunk[-1].key)
            return Loading.going_on(projector, last=last)
        return None

    async def _write(self, number: int, loading: Loading, at_end_ms: int, *, is_still: Callable[[], bool]) -> None:
        head = head_of(loading, self._of(number), at_end_ms=at_end_ms)
        if head is None:
            return
        pieces, projector = [], loading.projector
        groups = list(projector.groups.values())
        for piece in write_snapshot(head, groups, known_by_parts=projector.known_by_parts):
            pieces.append(piece)
            await asyncio.sleep(0)
            if not is_still():
                return
        await self._in_thread(_replace, self.file_of(number), pieces)


def _read(file: Path) -> bytes | None:
    try:
        return file.read_bytes()
    except FileNotFoundError:
        return None


def _replace(file: Path, pieces: Sequence[bytes]) -> None:
    """Replace a file atomically, so that it is complete even after a crash of the machine."""
    descriptor, name = tempfile.mkstemp(dir=file.parent, prefix=file.name, suffix=".new")  # of mode 0600
    try:
        with open(descriptor, "wb") as beside:  # noqa: PTH123 -- a descriptor
            beside.writelines(pieces)
            beside.flush()
            os.fsync(beside.fileno())
        Path(name).replace(file)
    except BaseException:
        with suppress(OSError):
            Path(name).unlink()
        raise
    folder = os.open(file.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
