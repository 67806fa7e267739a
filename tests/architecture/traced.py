"""`python -m tests.architecture.traced FILE ...`: run `muster ...`, and note calls of the walks' functions in FILE.

Each line is a call: the file from the top of the tree, a blank, the function.
"""

import os
import sys
import threading
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final

from muster.cli import main
from tests.architecture.walks import JOIN_GROUP, TAKEOVER, WHY

ROOT: Final = Path(__file__).parents[2]
WATCHED: Final = {(step.file, step.function) for walk in (JOIN_GROUP, TAKEOVER, WHY) for step in walk.steps}


class Tracer:
    """A function for `sys.settrace`. It writes each call immediately, since a process may be killed at any time."""

    def __init__(self, out: int) -> None:
        self._out = out
        self._lines: dict[CodeType, bytes | None] = {}

    def __call__(self, frame: FrameType, event: str, _argument: Any) -> None:
        if event != "call":
            return
        code = frame.f_code
        if code not in self._lines:
            self._lines[code] = _line(code)
        line = self._lines[code]
        if line is not None:
            os.write(self._out, line)


def _line(code: CodeType) -> bytes | None:
    """The line of a function that is watched; the package's folders are links."""
    file = Path(code.co_filename).resolve()
    if not file.is_relative_to(ROOT):
        return None
    call = (str(file.relative_to(ROOT)), code.co_qualname)
    return f"{call[0]} {call[1]}\n".encode() if call in WATCHED else None


if __name__ == "__main__":
    tracer = Tracer(os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600))
    sys.argv = ["muster", *sys.argv[2:]]
    threading.settrace(tracer)
    sys.settrace(tracer)
    main()
