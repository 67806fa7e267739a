"""Child processes on a leash end with the process that started them."""

import subprocess
import sys
import uuid
from pathlib import Path

from tests.brokers.child import leashed
from tests.brokers.probes import ROOT, WITHIN_S
from tests.waiting import until_so


def command_lines(word: str) -> list[int]:
    """The ids of the processes with `word` in their command line."""
    found = []
    for directory in Path("/proc").glob("[0-9]*"):
        try:
            line = (directory / "cmdline").read_bytes()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if word.encode() in line:
            found.append(int(directory.name))
    return found


class TestChild:
    """Child processes on a leash."""

    def test_a_child_dies_with_its_starter(self) -> None:
        """The starter is killed without a chance to clean up; the child ends all the same."""
        marker = f"leash-{uuid.uuid4()}"
        script = (
            "import sys; from tests.brokers.child import leashed\n"
            f"with leashed([sys.executable, '-c', 'import time; print(1, flush=True); time.sleep(600)', '{marker}'],"
            " stdout=None):\n"
            "    sys.stdin.read()\n"
        )
        starter = subprocess.Popen(
            [sys.executable, "-c", script], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        with starter:
            assert starter.stdout is not None
            assert starter.stdout.readline() == b"1\n"
            assert len(command_lines(marker)) == 3
            starter.kill()
        until_so(lambda: not command_lines(marker))

    def test_the_exit_code_is_the_commands(self) -> None:
        """An exit code unchanged, a signal as 128 plus its number."""
        for command, code in (("exit 7", 7), ("kill -KILL $$", 137)):
            with leashed(["/bin/sh", "-c", command], stdout=subprocess.DEVNULL) as leash:
                assert leash.wait(timeout=WITHIN_S) == code
