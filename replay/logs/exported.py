"""Exports (`exports.py`) as read-only logs.

The log has the file's content at the time when it was opened. Unreadable lines or blocks are skipped; `warnings` names
them.
"""

from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import IO, Final

from muster.events.log.base import LogMismatch
from muster.events.log.limits import CHUNK_RECORDS_MAX
from muster.events.log.only_read import OnlyReadLog
from muster.events.records import StoredRecord
from muster.replay.logs.container_form import ContainerForm
from muster.replay.logs.export_forms import CANNOT_DECODE, Form, JsonLinesForm, Section
from muster.replay.logs.exports import FORM, Head
from muster.replay.logs.unpacking import unpacked

PARTITIONS_MAX: Final = 100_000
"""The most partitions that a log can have. Each is read separately, so a forged number would waste the reader's
time.
"""
SKIPPED_NAMED: Final = 5
SKIPPED_KEPT: Final = 10_000
"""At most SKIPPED_NAMED skipped parts are named, and at most SKIPPED_KEPT are counted."""


class ExportedLog(OnlyReadLog):
    """A read-only EventLog. `suffix`: `.jsonl` or `.avro`."""

    def __init__(self, path: Path, suffix: str) -> None:
        super().__init__(f"the export {path}")
        self._path = path
        self._is_text = suffix == ".jsonl"
        self._form: Form = JsonLinesForm() if self._is_text else ContainerForm()
        self._file: IO[bytes] | None = None
        self._head: Head | None = None
        self._sections: dict[int, list[Section]] = {}
        self._skipped: dict[int, str] = {}
        self._damage: list[str] = []

    @property
    def location(self) -> str:
        return str(self._path)

    @property
    def identity(self) -> str:
        """The identity of the exported log."""
        return self._opened().identity

    @property
    def partitions(self) -> int:
        return self._opened().partitions

    @property
    def warnings(self) -> Sequence[str]:
        """Warnings about the parts that could not be read so far: the first are named, the others counted."""
        named = [
            f"the export {self._path}, {self._form.unit} {at:,}: {reason}; it was skipped"
            for at, reason in sorted(self._skipped.items())[:SKIPPED_NAMED]
        ]
        more = len(self._skipped) - len(named)
        if more:
            or_more = " or more" if len(self._skipped) >= SKIPPED_KEPT else ""
            named.append(
                f"the export {self._path}: {more:,}{or_more} other parts cannot be read, up to"
                f" {self._form.unit} {max(self._skipped):,}; they were skipped"
            )
        return [*self._damage, *named]

    async def open(self) -> None:
        """See EventLog; locates the sections. Raises LogMismatch."""
        try:
            plain = unpacked(self._path, is_text=self._is_text)
        except OSError as error:
            raise LogMismatch(f"the export {self._path} cannot be read: {error.strerror}") from error
        self._file = plain.file
        if plain.damage is not None:
            self._damage.append(
                f"the export {self._path} {plain.damage}. The part that could not be unpacked was left out"
            )
        self._head = self._read_head(plain.file)
        self._find_sections(plain.file, self._head)

    async def close(self) -> None:
        if self._file is not None:
            self._file.close()

    def _read_head(self, file: IO[bytes]) -> Head:
        try:
            head = self._form.head(file)
        except CANNOT_DECODE as error:
            raise LogMismatch(
                f"{self._path} is not an export of muster replay: {error}; make one"
                f" with `muster replay export {self._path.name} --log URL`"
            ) from error
        if head.form != FORM:
            raise LogMismatch(f"{self._path} is an export of the form {head.form!r}, this version knows {FORM}")
        if not 1 <= head.partitions <= PARTITIONS_MAX:
            raise LogMismatch(
                f"{self._path} says that its log has {head.partitions:,} partitions, and a log has 1 to"
                f" {PARTITIONS_MAX:,}: its head was altered; export the log again"
            )
        return head

    def _find_sections(self, file: IO[bytes], head: Head) -> None:
        found = 0
        for section in self._form.sections(file, self._skip):
            if not 0 <= section.partition < head.partitions:
                where = f"partition {section.partition} of a log of {head.partitions}"
                self._skip(section.line or section.at, f"it has records of {where}")
                continue
            self._sections.setdefault(section.partition, []).append(section)
            found += section.records
        if head.records is not None and found > head.records:
            self._damage.append(
                f"the export {self._path} was written with {head.records:,} records and has {found:,}: those of another"
                " export were added, perhaps of another log"
            )
        elif head.records is not None and found + len(self._skipped) < head.records and not self._damage:
            self._damage.append(
                f"the export {self._path} was written with {head.records:,} records and has {found:,}: its end is"
                " missing, or a part was taken out"
            )

    def _skip(self, at: int, reason: str) -> None:
        if len(self._skipped) < SKIPPED_KEPT:
            self._skipped.setdefault(at, reason)

    async def has_owners_record(self, partition: int) -> bool:
        return bool(self._sections.get(partition))

    async def end_offset(self, partition: int) -> int:
        sections = self._sections.get(partition)
        return max(section.last for section in sections) + 1 if sections else 0

    async def read(
        self, partition: int, *, start: int = 0, end: int | None = None
    ) -> AsyncIterator[Sequence[StoredRecord]]:
        """See EventLog."""
        chunk: list[StoredRecord] = []
        for record in self._records(partition, start, end):
            chunk.append(record)
            if len(chunk) >= CHUNK_RECORDS_MAX:
                yield chunk
                chunk = []
        if chunk:
            yield chunk

    def _records(self, partition: int, start: int, end: int | None) -> Iterator[StoredRecord]:
        """Yield the partition's records in this range of offsets; a record whose offset does not increase is
        skipped.
        """
        assert self._file is not None, "the export is not open"
        for section in self._sections.get(partition, ()):
            if section.last < start or (end is not None and section.first >= end):
                continue
            for record in self._form.records(self._file, section, self._skip):
                if start <= record.offset and (end is None or record.offset < end):
                    start = record.offset + 1
                    yield record

    def _opened(self) -> Head:
        assert self._head is not None, "the export is not open"
        return self._head
