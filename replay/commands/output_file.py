"""The file that a command writes: where it may be, and a page written to it whole or not at all."""

import os
from pathlib import Path

from muster.events.log.base import EventLog
from muster.replay.commands.opening import CANNOT_READ, fail
from muster.replay.text.printable import printable


def check_folder(out: Path) -> None:
    """End the command if there is no folder to write into."""
    if not out.parent.is_dir():
        fail(f"{printable(str(out))} cannot be written: there is no folder {printable(str(out.parent))}", CANNOT_READ)


def refuse_to_replace(log: EventLog, to: Path) -> None:
    """End the command if a file that is to be written is the log that is read."""
    try:
        is_log = to.samefile(log.location)
    except OSError:  # one of them is no file, or not there yet
        return
    if is_log:
        fail(f"{to} is the log that is read: write to another file", CANNOT_READ)


def write_page(out: Path, text: str) -> None:
    """Write the page beside the file and put it in its place; what is no file (/dev/stdout) is written to."""
    try:
        if out.exists() and not out.is_file():
            out.write_text(text, encoding="utf-8")  # where /dev/stdout leads has no path if it is a pipe
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
