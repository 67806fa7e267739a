"""`python -m muster.drills.service.leashed serve ...`: the command, which ends when its standard input does.

Whoever starts it holds the other end of that pipe. However that process ends, SIGKILL included, the system closes the
pipe, so no process of a drill outlives it.
"""

import os
import runpy
import signal
import threading


def _end_with_input() -> None:
    # Not through sys.stdin: a thread that waits inside its buffer makes the interpreter abort at exit.
    while os.read(0, 1024):
        pass
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    threading.Thread(target=_end_with_input, daemon=True).start()
    runpy.run_module("muster", run_name="__main__", alter_sys=True)
