"""Where clients run: on this host, behind a proxy, in a network namespace that can be cut off.

    DIRECT            client ─► recorder ─► coordinator          all at 127.0.0.1
    SOCAT, HAPROXY    client ─► proxy ─► recorder ─► coordinator
    a cut             client ─► recorder                         each in a network namespace, with a bridge between

A namespace's only way out is its end of the bridge. This module creates and removes them, which requires root.
"""

import ctypes
import os
import shutil
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Final

import msgspec

from tests.brokers.broker import HOST, lasting_ports
from tests.clients.endings.given import PARTITIONS, TOPIC, Way
from tests.clients.endings.recorder import Recorder
from tests.muster_process import TEST_CONFIG, MusterProcess, running_muster, sqlite_log
from tests.waiting import until_so

_SERVER, _CLIENT = "198.18.77.1", "198.18.77.2"
_BACKLOG: Final = 128
_CLONE_NEWNET: Final = 0x40000000
_NUMBERS: Final = count()


class PlaceMissing(Exception):
    """It is not available here; the message has the reason."""


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """A Muster, the recorder in front of it, and the client's path to them."""

    muster: MusterProcess
    recorder: Recorder
    bootstrap: str
    behind: str
    """Muster's own address; clients do not know it."""
    prefix: tuple[str, ...] = ()
    """The prefix of a client's command."""
    link: "Link | None" = None
    proxy: "Proxy | None" = None


class Link(msgspec.Struct, frozen=True, kw_only=True):
    """The names of three network namespaces: the client's, the server's, and a bridge between them."""

    server: str
    wire: str
    client: str

    def join(self) -> None:
        _ip("-n", self.wire, "link", "set", "to-client", "master", "bridge")

    def cut(self) -> None:
        """From now on neither side receives anything, not even an error: their own devices stay up."""
        _ip("-n", self.wire, "link", "set", "to-client", "nomaster")


class Proxy(msgspec.Struct, kw_only=True):
    """A proxy process between client and recorder."""

    process: subprocess.Popen[bytes]

    def kill(self) -> None:
        """Kill it and its child processes with SIGKILL."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


@contextmanager
def place(way: Way, folder: Path, *, can_be_cut: bool = False) -> Iterator[Place]:
    """A place while the block lasts. Raises `PlaceMissing`."""
    with ExitStack() as stack:
        link = stack.enter_context(_link()) if can_be_cut else None
        listener = _listener() if link is None else _listener_in(link)
        host, port = listener.getsockname()
        last_hop = f"{host}:{port}"
        seen = last_hop if way is Way.DIRECT else f"{host}:{lasting_ports(1)[0]}"
        behind = f"{HOST}:{lasting_ports(1)[0]}"
        muster = stack.enter_context(
            running_muster(
                log=sqlite_log(folder),
                topics=[f"{TOPIC}:{PARTITIONS}"],
                config=TEST_CONFIG,
                options=["--listen", behind, "--advertise", seen],
            )
        )
        recorder = Recorder(behind)
        stack.enter_context(recorder.serving(listener))
        proxy = None if way is Way.DIRECT else stack.enter_context(_proxy(way, seen, last_hop, folder, link))
        prefix = () if link is None else ("ip", "netns", "exec", link.client)
        yield Place(
            muster=muster, recorder=recorder, bootstrap=seen, behind=behind, prefix=prefix, link=link, proxy=proxy
        )


def _listener(host: str = HOST) -> socket.socket:
    listener = socket.socket()
    listener.bind((host, 0))
    listener.listen(_BACKLOG)
    return listener


# ---- namespaces ------------------------------------------------------------------------------------------------------


def _ip(*arguments: str) -> None:
    subprocess.run(("ip", *arguments), check=True, capture_output=True, text=True)


@contextmanager
def _link() -> Iterator[Link]:
    if os.geteuid() != 0 or shutil.which("ip") is None:
        raise PlaceMissing("network namespaces take root, and ip: NOTHING IS CUT OFF")
    number = next(_NUMBERS)
    link = Link(**{name: f"muster-{name}-{os.getpid()}-{number}" for name in ("server", "wire", "client")})
    names = (link.server, link.wire, link.client)
    try:
        for name in names:
            _ip("netns", "add", name)
            _ip("-n", name, "link", "set", "lo", "up")
        _ip("-n", link.wire, "link", "add", "bridge", "type", "bridge")
        _ip("-n", link.wire, "link", "set", "bridge", "up")
        for name, to, address in ((link.server, "to-server", _SERVER), (link.client, "to-client", _CLIENT)):
            _ip("-n", link.wire, "link", "add", to, "type", "veth", "peer", "wire", "netns", name)
            _ip("-n", link.wire, "link", "set", to, "master", "bridge", "up")
            _ip("-n", name, "address", "add", f"{address}/30", "dev", "wire")
            _ip("-n", name, "link", "set", "wire", "up")
        yield link
    finally:
        for name in names:
            subprocess.run(("ip", "netns", "delete", name), check=False, capture_output=True)


def _listener_in(link: Link) -> socket.socket:
    """A socket in the server's namespace: a socket belongs to the namespace of the thread that created it."""
    made: list[socket.socket] = []

    def make() -> None:
        with Path(f"/run/netns/{link.server}").open("rb") as namespace:
            if ctypes.CDLL(None, use_errno=True).setns(namespace.fileno(), _CLONE_NEWNET):
                raise OSError(ctypes.get_errno(), "setns")
        made.append(_listener(_SERVER))

    thread = threading.Thread(target=make)
    thread.start()
    thread.join()
    return made[0]


# ---- proxies ---------------------------------------------------------------------------------------------------------

PROXY_TIMEOUT_S: Final = 4
"""haproxy closes a connection that is silent for this long: more than a heartbeat interval, less than a session."""

_HAPROXY: Final = """
global
    maxconn 100
defaults
    mode tcp
    timeout connect 5s
    timeout client {timeout_s}s
    timeout server {timeout_s}s
listen coordinator
    bind {listen}
    server coordinator {target}
"""


@contextmanager
def _proxy(way: Way, listen: str, target: str, folder: Path, link: Link | None) -> Iterator[Proxy]:
    """On the server's side of the link, if there is one."""
    if shutil.which(way.value) is None:
        raise PlaceMissing(f"{way} is not installed: NOTHING IS TRIED BEHIND IT")
    if way is Way.SOCAT:
        host, _, port = listen.rpartition(":")
        command = ["socat", f"TCP-LISTEN:{port},bind={host},fork,reuseaddr", f"TCP:{target}"]
    else:
        config = folder / "haproxy.cfg"
        text = _HAPROXY.format(listen=listen, target=target, timeout_s=PROXY_TIMEOUT_S)
        config.write_text(text, encoding="utf-8")
        command = ["haproxy", "-db", "-f", str(config)]
    if link is not None:
        command = ["ip", "netns", "exec", link.server, *command]
    proxy = Proxy(process=subprocess.Popen(command, stdin=subprocess.DEVNULL, process_group=0))
    try:
        until_so(lambda: _is_open(listen, link), f"{way} does not listen")
        yield proxy
    finally:
        proxy.kill()


def _is_open(address: str, link: Link | None) -> bool:
    host, _, port = address.rpartition(":")
    prefix = [] if link is None else ["ip", "netns", "exec", link.server]
    command = [*prefix, "ss", "-Htln", f"src {host} and sport = :{port}"]
    return bool(subprocess.run(command, check=True, capture_output=True).stdout)
