"""A leash: runs the command of its arguments and kills it when its own standard input ends.

It has the few lines that must survive a killed test process. It uses the standard library alone and runs as a script of
its own (see `child.py`), so it must not import anything of the project.

The process that starts it holds the other end of the pipe that is its standard input. However that process ends,
including SIGKILL, the system closes the pipe, and the command is killed. Its exit code is the command's.
"""

import os
import signal
import subprocess
import sys
import threading


def main() -> int:
    # A handler, not SIG_IGN, which the command would inherit: the signal goes to the whole process group, and it is
    # the command's business how to end.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)
    command = subprocess.Popen(sys.argv[1:], stdin=subprocess.DEVNULL)
    threading.Thread(target=_kill_at_end_of_input, args=(command,), daemon=True).start()
    code = command.wait()
    return code if code >= 0 else 128 - code


def _kill_at_end_of_input(command: subprocess.Popen[bytes]) -> None:
    # Not through sys.stdin: a thread that waits inside its buffer makes the interpreter abort at exit.
    while os.read(0, 1024):
        pass
    command.kill()


if __name__ == "__main__":
    sys.exit(main())
