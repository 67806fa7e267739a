"""A process that is forked for each program of a kind that the tests run (see `forked.py`).

It runs as `python -m tests.forked_template KIND`, imports what such a program imports, and then forks once for each
message on the socket that is its standard input. The fork becomes a leash (see `brokers/leash.py`) in a session of its
own, which forks the program as its only child.
"""

import gc
import json
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Final, NoReturn

from tests.brokers.leash import hold, ignore_signals_of_the_group

KINDS: Final = {
    "serve": (
        "muster.cli:main",
        "uvloop",
        "muster.coordinator.serve_cli",
        "muster.coordinator.serve",
        "muster.coordinator.sidecar.serve",
        "muster.coordinator.wire.registry",
    ),
    "command": (
        "muster.cli:main",
        "muster.coordinator.client.commands.members_cli",
        "muster.coordinator.client.coordinator_link",
        "muster.events.log.sqlite.open",
        "muster.replay.cli",
        "muster.replay.commands.opening",
        "muster.replay.commands.reading",
        "muster.replay.commands.why",
        "rich.console",
    ),
    "client": ("tests.judge.real.process_main:run_to_the_end",),
}
"""The function that is run, and what is imported beforehand although the program imports it only when it needs it."""

MESSAGE_BYTES_MAX: Final = 1 << 20


def fork_for_each_message(kind: str) -> Callable[[], Any]:
    """Return in each program the function to be run, with its arguments, environment, folder and output in place.

    Else end with the input.
    """
    program = _imported(*KINDS[kind])
    gc.collect()
    gc.freeze()  # a collection in a fork, such as the one at its end, would copy the pages of all these objects
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # no zombies are left of the leashes
    link = socket.socket(fileno=0)
    while True:
        message, descriptors, _, _ = socket.recv_fds(link, MESSAGE_BYTES_MAX, 4)
        if not message:
            os._exit(0)
        if os.fork() == 0:
            link.detach()
            _read_nothing()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            _become_leash(json.loads(message), *descriptors)
            return program
        for descriptor in descriptors:
            os.close(descriptor)


def _imported(function: str, *modules: str) -> Callable[[], Any]:
    for module in modules:
        imported = import_module(module)
        if hasattr(imported, "load_messages_of_members"):
            imported.load_messages_of_members()
    module, _, name = function.partition(":")
    program: Callable[[], Any] = getattr(import_module(module), name)
    return program


def _become_leash(requested: dict[str, Any], leash: int, stdout: int, stderr: int, reports: int) -> None:
    """Return in the program alone."""
    os.setsid()
    program = os.fork()
    if program:
        _hold(program, leash, reports)
    os.close(leash)
    os.close(reports)
    _prepare(requested, stdout, stderr)


def _hold(program: int, leash: int, reports: int) -> NoReturn:
    ignore_signals_of_the_group()
    os.write(reports, f"{os.getpid()}\n".encode())
    os.write(reports, f"{hold(program, leash)}\n".encode())
    os._exit(0)


def _read_nothing() -> None:
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)  # instead of the socket
    os.close(nothing)


def _prepare(requested: dict[str, Any], stdout: int, stderr: int) -> None:
    for number, output in ((1, stdout), (2, stderr)):
        os.dup2(output, number)
        os.close(output)
    os.environ.clear()
    os.environ.update(requested["environment"])
    time.tzset()
    os.chdir(requested["folder"])
    _be_named_as_muster(requested["arguments"], requested["folder"])


def _be_named_as_muster(arguments: Sequence[str], folder: str) -> None:
    """As `python -m muster` has it: click names the program by it, and multiprocessing what a new process imports."""
    main, spec = sys.modules["__main__"], find_spec("muster.__main__")
    assert spec is not None
    assert spec.origin is not None
    main.__spec__, main.__package__ = spec, spec.parent
    sys.argv = [spec.origin, *arguments]
    sys.path[0] = folder


if __name__ == "__main__":
    sys.exit(fork_for_each_message(sys.argv[1])())
