"""`python -m muster.drills.service.leashed serve ...`: `muster serve`, which ends when its standard input is closed.

The drill holds the other end of that pipe. Even if the drill is killed with SIGKILL, the system closes the pipe, so no
process of a drill outlives it.
"""

import os
import runpy
import signal
import threading


def _end_with_input() -> None:
    # Not with sys.stdin: a thread that blocks in its buffer makes the interpreter abort at exit.
    while os.read(0, 1024):
        pass
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    threading.Thread(target=_end_with_input, daemon=True).start()
    runpy.run_module("muster", run_name="__main__", alter_sys=True)
