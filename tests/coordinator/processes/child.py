"""A child process for tests of its supervisor: it answers each connection with its process id, and exits on demand.

child.py FOLDER     `ports`: where to listen, once the file exists; `exit`: the code to exit with, at once or on a
signal
"""

import asyncio
import os
import signal
import socket
import sys
from pathlib import Path

from muster.coordinator.net.kept_sockets import KeptSockets

HOST = "127.0.0.1"
CHECK_INTERVAL_S = 0.01


async def main(folder: Path) -> None:
    kept = KeptSockets.of_environment()
    ended = asyncio.Event()
    kept.when_alone(ended.set)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    end_if_told(folder)
    while not (folder / "ports").exists():
        if ended.is_set():
            return
        await asyncio.sleep(CHECK_INTERVAL_S)

    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(f"{os.getpid()}\n".encode())
        await writer.drain()
        writer.close()

    for port in map(int, (folder / "ports").read_text().split()):
        bound = kept.take(socket.AF_INET, HOST, port) or socket.create_server((HOST, port), reuse_port=True)
        kept.keep(bound)
        await asyncio.start_server(answer, sock=bound)
    kept.report_metrics(1)
    kept.serves()
    await ended.wait()
    end_if_told(folder)


def end_if_told(folder: Path) -> None:
    if (folder / "exit").exists():
        sys.exit(int((folder / "exit").read_text()))


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
