"""A leash: runs the command in its arguments and kills it when its own standard input ends.

These few lines must survive a killed test process. The module only uses the standard library and runs as a separate
script (see `child.py`), so it must not import anything of the project. `tests/forked_template.py` uses the same lines
for its forks.

The process that starts it has the other end of the pipe that is its standard input. However that process ends,
including SIGKILL, the system closes the pipe, and the command is killed. Its exit code is the command's.
"""

import os
import signal
import subprocess
import sys
import threading
from contextlib import suppress


def main() -> int:
    ignore_signals_of_the_group()
    command = subprocess.Popen(sys.argv[1:], stdin=subprocess.DEVNULL)
    return hold(command.pid, leash=0)


def ignore_signals_of_the_group() -> None:
    """Leave SIGTERM and SIGINT to the command, which decides how to end: they go to the whole process group."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)  # not SIG_IGN, which the command would inherit


def hold(command: int, leash: int) -> int:
    """Wait for this child's end; kill it when `leash` ends. Return its exit code, or 128 plus its signal's number."""
    threading.Thread(target=_kill_at_end_of_input, args=(command, leash), daemon=True).start()
    _, status = os.waitpid(command, 0)
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def _kill_at_end_of_input(command: int, leash: int) -> None:
    # Not through sys.stdin: a thread that waits inside its buffer makes the interpreter abort at exit.
    while os.read(leash, 1024):
        pass
    with suppress(ProcessLookupError):
        os.kill(command, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main())
