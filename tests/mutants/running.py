"""A process that runs pytest again and again, each time in a fork that has all but the tree's own modules loaded.

A line of its input names a directory with `arguments.txt` in it and the limit in seconds; pytest prints into
`printed.txt` there, and the exit code is the line of output, `late` after the limit. Which modules of others a run has
loaded is known after the first one: `python -m pytest` spends most of a short run on them. Modules of `muster` and of
the tests are never loaded here, since a mutant is in one of them.
"""

import importlib
import os
import signal
import sys
import time
from pathlib import Path
from typing import Final

import pytest

OUR_OWN: Final = {"muster", "tests", "conftest", "benchmarks", "demo", "__main__"}
POLL_INTERVAL_S: Final = 0.01
LATE: Final = "late"


def main() -> None:
    """Serve until the input ends; the run that is left then ends with it."""
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    for line in sys.stdin:
        directory, limit_s = line.rsplit(maxsplit=1)
        print(_run(Path(directory), float(limit_s)), flush=True)
        _load(Path(directory) / "loaded.txt")


def _run(directory: Path, limit_s: float) -> str:
    child = os.fork()
    if not child:
        _pytest(directory)
    ended, until = 0, time.monotonic() + limit_s
    try:
        while time.monotonic() < until:
            ended, status = os.waitpid(child, os.WNOHANG)
            if ended:
                return str(os.waitstatus_to_exitcode(status))
            time.sleep(POLL_INTERVAL_S)
        return LATE
    finally:
        if not ended:
            os.killpg(child, signal.SIGKILL)
            os.waitpid(child, 0)


def _pytest(directory: Path) -> None:
    os.setsid()  # whatever it starts ends with it
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    with (directory / "printed.txt").open("wb") as printed, Path(os.devnull).open("rb") as nothing:
        os.dup2(nothing.fileno(), 0)
        os.dup2(printed.fileno(), 1)
        os.dup2(printed.fileno(), 2)
    code = 70  # EX_SOFTWARE
    try:
        code = int(pytest.main((directory / "arguments.txt").read_text(encoding="utf-8").splitlines()))
        names = [name for name in sys.modules if name.partition(".")[0] not in OUR_OWN]
        (directory / "loaded.txt").write_text("\n".join(names), encoding="utf-8")
    finally:
        sys.stdout.flush()
        os._exit(code)


def _load(listed: Path) -> None:
    for name in listed.read_text(encoding="utf-8").splitlines() if listed.exists() else ():
        if name not in sys.modules:
            try:
                importlib.import_module(name)
            except ImportError:
                continue  # created by its importer, or another name of a module


if __name__ == "__main__":
    main()
