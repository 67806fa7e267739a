"""How the clients in other languages are fetched and built, once for each version.

It uses the ordinary clients of their package registries, and stores the result.

A program's folder is copied into the cache directory (`tests/brokers/jars.py`) under a name that changes with its
files, its libraries are fetched there according to its lock file, and it is built there. The folder appears completely
or not at all, under a lock, as Kafka's jars do.
"""

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from tests.brokers.broker import log_tail
from tests.brokers.jars import cache_directory, cache_lock

HERE: Final = Path(__file__).parent
BUILT_WITHIN_S: Final = 280


class ToolMissing(Exception):
    """The language is not installed here; the message says what is not tested."""


class BuildFailed(Exception):
    """It is installed, but the program could not be fetched or built; the message has the output."""


class Program(msgspec.Struct, frozen=True, kw_only=True):
    """A client in another language."""

    library: str
    """Its name for display."""
    folder: str
    tools: tuple[str, ...]
    """The programs that must be installed."""
    build: tuple[str, ...]
    """Run in a copy of the folder."""
    environment: Mapping[str, str]
    run: tuple[str, ...]
    """The command without its arguments; `{directory}` is where it was built."""

    def command(self) -> list[str]:
        """The command without its arguments; built on first use. Raises `ToolMissing`, `BuildFailed`."""
        missing = [tool for tool in self.tools if shutil.which(tool) is None]
        if missing:
            raise ToolMissing(f"{' and '.join(missing)} NOT INSTALLED: NOT TESTED WITH {self.library}")
        directory = cache_directory() / f"{self.folder}-{self._fingerprint()}"
        if not directory.is_dir():
            with cache_lock(directory.name):
                if not directory.is_dir():
                    self._build_to(directory)
        return [part.format(directory=directory) for part in self.run]

    def _fingerprint(self) -> str:
        digest = hashlib.sha256(" ".join(self.build).encode())
        for file in sorted((HERE / self.folder).iterdir()):
            digest.update(file.name.encode() + b"\0" + file.read_bytes())
        return digest.hexdigest()[:12]

    def _build_to(self, directory: Path) -> None:
        with tempfile.TemporaryDirectory(prefix="building-", dir=directory.parent) as scratch:
            copy = Path(scratch) / self.folder
            shutil.copytree(HERE / self.folder, copy)
            done = subprocess.run(
                self.build,
                cwd=copy,
                env={**os.environ, **self.environment},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=BUILT_WITHIN_S,
                check=False,
            )
            if done.returncode:
                raise BuildFailed(f"{' '.join(self.build)} failed for {self.library}:\n{log_tail(done.stdout)}")
            copy.rename(directory)


KAFKAJS: Final = Program(
    library="kafkajs",
    folder="kafkajs",
    tools=("node", "npm"),
    build=("npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"),
    environment={},
    run=("node", "{directory}/client.js"),
)
FRANZ_GO: Final = Program(
    library="franz-go",
    folder="franz_go",
    tools=("go",),
    build=("go", "build", "-o", "client", "."),
    # With the installed compiler, whatever version the libraries request.
    environment={"GOTOOLCHAIN": "local"},
    run=("{directory}/client",),
)
