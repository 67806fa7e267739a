"""The process that is forked for each `muster serve` of the tests (see `forked_muster.py`).

It runs as a script of its own, imports what a server imports, and then forks once for each message on the socket that
is its standard input. The fork becomes a leash (see `brokers/leash.py`) in a session of its own, which forks the server
as its only child.
"""

import gc
import json
import os
import signal
import socket
import sys
import threading
import time
from contextlib import suppress
from importlib import import_module
from typing import Any, NoReturn

from muster.cli import main
from muster.coordinator.wire.registry import load_messages_of_members

IMPORTED = ("uvloop", "muster.coordinator.serve_cli", "muster.coordinator.serve", "muster.coordinator.sidecar.serve")
"""Imported by `muster serve` only when it runs."""

MESSAGE_BYTES_MAX = 1 << 20


def fork_for_each_message() -> None:
    """Return in each server, with its arguments, environment, folder and output in place. Else end with the input."""
    for module in IMPORTED:
        import_module(module)
    load_messages_of_members()
    gc.collect()
    gc.freeze()  # a collection in a fork would copy the pages of all these objects
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # no zombies are left of the leashes
    link = socket.socket(fileno=0)
    while True:
        message, descriptors, _, _ = socket.recv_fds(link, MESSAGE_BYTES_MAX, 3)
        if not message:
            os._exit(0)
        if os.fork() == 0:
            link.detach()
            _read_nothing()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            _become_leash(json.loads(message), *descriptors)
            return
        for descriptor in descriptors:
            os.close(descriptor)


def _become_leash(asked: dict[str, Any], leash_in: int, output: int, reports: int) -> None:
    """Return in the server alone."""
    os.setsid()
    server = os.fork()
    if server:
        _hold(server, leash_in, reports)
    os.close(leash_in)
    os.close(reports)
    _prepare(asked, output)


def _hold(server: int, leash_in: int, reports: int) -> NoReturn:
    for number in (signal.SIGTERM, signal.SIGINT):  # they go to the whole process group; the server ends as it likes
        signal.signal(number, lambda *_: None)
    os.write(reports, f"{os.getpid()}\n".encode())
    threading.Thread(target=_kill_at_end_of_input, args=(server, leash_in), daemon=True).start()
    _, status = os.waitpid(server, 0)
    code = os.waitstatus_to_exitcode(status)
    os.write(reports, f"{code if code >= 0 else 128 - code}\n".encode())
    os._exit(0)


def _kill_at_end_of_input(server: int, leash_in: int) -> None:
    while os.read(leash_in, 1024):
        pass
    with suppress(ProcessLookupError):
        os.kill(server, signal.SIGKILL)


def _read_nothing() -> None:
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)  # instead of the socket
    os.close(nothing)


def _prepare(asked: dict[str, Any], output: int) -> None:
    for number in (1, 2):
        os.dup2(output, number)
    os.close(output)
    os.environ.clear()
    os.environ.update(asked["environment"])
    time.tzset()
    os.chdir(asked["folder"])
    sys.argv = ["muster", *asked["arguments"]]
    gc.unfreeze()


if __name__ == "__main__":
    fork_for_each_message()
    main()
