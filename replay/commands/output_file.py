"""Checks the file that a command writes, and writes a page atomically."""

import os
from pathlib import Path

from muster.events.log.base import EventLog
from muster.replay.commands.opening import CANNOT_READ, fail
from muster.replay.text.printable import printable


def check_folder(out: Path) -> None:
    """End the command if the folder to write into does not exist."""
    if not out.parent.is_dir():
        fail(f"{printable(str(out))} cannot be written: there is no folder {printable(str(out.parent))}", CANNOT_READ)


def refuse_to_replace(log: EventLog, to: Path) -> None:
    """End the command if the output file is the log that is being read."""
    try:
        is_log = to.samefile(log.location)
    except OSError:  # one of them is not a file, or does not exist yet
        return
    if is_log:
        fail(f"{to} is the log that is read: write to another file", CANNOT_READ)


def write_page(out: Path, text: str) -> None:
    """Write the page to a temporary file and rename it into place; if the output is not a file (/dev/stdout), write
    directly.
    """
    try:
        if out.exists() and not out.is_file():
            out.write_text(text, encoding="utf-8")  # /dev/stdout may be a pipe, which has no path
            return
        target = out.resolve()
        beside = target.with_name(f".{target.name}.{os.getpid()}")
        try:
            with beside.open("x", encoding="utf-8") as file:
                file.write(text)
            beside.replace(target)
        finally:
            beside.unlink(missing_ok=True)
    except OSError as error:
        fail(f"{printable(str(out))} cannot be written: {error.strerror}", CANNOT_READ)
