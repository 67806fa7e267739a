"""Opens the log that `--log` names, for reading.

* `sqlite:///muster.db`, `kafka://...`: a log (`events/log/url.py`)
* `jsonl:///night.jsonl`, `night.jsonl`, `avro:///night.avro`, `night.avro`: an export (`exported.py`), also with gzip:
  `night.jsonl.gz`
* `archive:/path/of/archive`: the archive of a log (`replay/archive/`)
"""

import importlib.util
from pathlib import Path
from typing import Final
from urllib.parse import unquote

from muster.events.kafka.security import KafkaSecurity
from muster.events.log.base import EventLog, LogMismatch
from muster.events.log.url import InvalidLogUrl, open_log
from muster.replay.logs.exported import ExportedLog

_SCHEMES: Final = {"jsonl": ".jsonl", "avro": ".avro"}
_ARCHIVE: Final = "archive:"


def open_for_reading(url: str, *, security: KafkaSecurity) -> EventLog:
    """Create the log that `--log` names; the caller awaits its `open()`. Raises LogMismatch if the URL is invalid."""
    if url.startswith(_ARCHIVE):
        return _archive_of_fleet(Path(unquote(url.removeprefix(_ARCHIVE))))
    scheme, separator, rest = url.partition(":///")
    if separator and scheme in _SCHEMES:
        return ExportedLog(Path(unquote(rest)), _SCHEMES[scheme])
    if "://" not in url and (suffix := _suffix_of(url)) in _SCHEMES.values():
        return ExportedLog(Path(url), suffix)
    try:
        return open_log(url, read_only=True, security=security)
    except InvalidLogUrl as error:
        is_file = "://" not in url and Path(url).is_file()
        hint = f"; a SQLite log is named sqlite:///{url}, an export jsonl:///{url} or avro:///{url}" if is_file else ""
        raise LogMismatch(f"{error}, an export NAME.jsonl or NAME.avro, an archive archive:DIR{hint}") from error


def _suffix_of(path: str) -> str:
    """Return the suffix of an export's name in its canonical form: '.jsonl' for NIGHT.JSONL.gz."""
    return Path(path.lower().removesuffix(".gz")).suffix


def _archive_of_fleet(path: Path) -> EventLog:
    if importlib.util.find_spec("pyarrow") is None:
        raise LogMismatch(f"{_ARCHIVE}{path} needs pyarrow: pip install '.[fleet]' in Muster's checkout")
    from muster.replay.archive.log import ArchiveLog  # noqa: PLC0415 -- an extra

    return ArchiveLog(path)
