"""A headless Chromium, controlled over a pipe (--remote-debugging-pipe): JSON messages, a NUL after each.

With `MUSTER_TEST_NO_BROWSER=1`, or on a machine without a browser, its tests are skipped with a message; CI must have
one.
"""

import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

NAMES: Final = (
    "chromium", "chromium-browser", "google-chrome", "google-chrome-stable",
    "/Applications/Chromium.app/Contents/MacOS/Chromium",
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
)  # fmt: skip
ANSWER_SECONDS: Final = 100
MESSAGE_BYTES_MAX: Final = 64_000_000
FLAGS: Final = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-extensions",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage",
    "--hide-scrollbars", "--remote-debugging-pipe",
)  # fmt: skip

STARTER: Final = """
import fcntl, os, sys
pipes = [fcntl.fcntl(int(each), fcntl.F_DUPFD, 10) for each in sys.argv[1:3]]
for number, each in enumerate(pipes, 3):
    os.dup2(each, number)
os.execv(sys.argv[3], sys.argv[3:])
"""
"""The browser's ends of the pipes are its descriptors 3 and 4."""


def found() -> str | None:
    """Return the path of a Chromium; None if there is none."""
    return next(filter(None, map(shutil.which, NAMES)), None)


class Failed(Exception):
    """The browser returned an error, or no response."""


class Tab:
    """A page in the browser. `requests`, `errors` and `messages` were seen since it was opened."""

    def __init__(self, to_browser: int, from_browser: int) -> None:
        self._to, self._from = to_browser, from_browser
        self._read = b""
        self._number = 0
        self._session: str | None = None
        self.requests: list[str] = []
        self.errors: list[str] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        self.call("Performance.enable", timeDomain="threadTicks")

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Send a command to the browser, and wait for the response."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": params}
        if self._session is not None:
            message["sessionId"] = self._session
        self._write(json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next(method)
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise Failed(f"{method}: {answer['error']}")
                result: dict[str, Any] = answer["result"]
                return result
            self._note(answer)

    def open(self, url: str) -> None:
        """Load a page, and wait for its load event."""
        self.requests.clear()
        self.errors.clear()
        self.call("Page.navigate", url=url)
        self.until("document.readyState === 'complete' && location.href !== 'about:blank'")
        self.frame()

    def frame(self) -> None:
        """Wait until the requested change is drawn."""
        self.run("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(1))))")

    def run(self, script: str) -> Any:
        """Return the value of an expression in the page."""
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise Failed(str(answer["exceptionDetails"]))
        return answer["result"].get("value")

    def processor_ms(self) -> float:
        """Return the processor time of the page's thread so far: script, style, layout and painting."""
        found = {each["name"]: each["value"] for each in self.call("Performance.getMetrics")["metrics"]}
        return float(found["TaskDuration"]) * 1_000

    def until(self, condition: str) -> None:
        """Wait until an expression is true."""
        deadline = time.monotonic() + ANSWER_SECONDS
        while not self.run(condition):
            if time.monotonic() > deadline:
                raise Failed(f"never true: {condition}")

    def mouse(self, kind: str, x: float, y: float, **more: Any) -> None:
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)
        self.frame()

    def key(self, key: str) -> None:
        """Press a key."""
        text = {"text": key} if len(key) == 1 else {}
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, **text)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key)
        self.frame()

    def size(self, width: int, height: int) -> None:
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )

    def _write(self, message: bytes) -> None:
        while message:
            message = message[os.write(self._to, message) :]

    def _next(self, waits_for: str) -> dict[str, Any]:
        while b"\0" not in self._read:
            ready, _, _ = select.select([self._from], [], [], ANSWER_SECONDS)
            more = os.read(self._from, 1 << 20) if ready else b""
            if not more or len(self._read) > MESSAGE_BYTES_MAX:
                raise Failed(f"no answer to {waits_for}")
            self._read += more
        message, _, self._read = self._read.partition(b"\0")
        decoded: dict[str, Any] = json.loads(message)
        return decoded

    def _note(self, message: dict[str, Any]) -> None:
        method, params = message.get("method"), message.get("params", {})
        if method == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])
        elif method == "Runtime.exceptionThrown":
            self.errors.append(str(params["exceptionDetails"]))
        elif method == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            self.errors.append(params["entry"]["text"])
        elif method == "Runtime.consoleAPICalled":
            self.errors.append(str(params["args"]))


@contextmanager
def browser() -> Iterator[Tab]:
    """Start a browser with one page, and end it with the block."""
    program = found()
    if program is None:
        raise Failed("no Chromium here: apt-get install chromium, or say MUSTER_TEST_NO_BROWSER=1")
    to_read, to_write = os.pipe()
    from_read, from_write = os.pipe()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        pipes = (to_read, from_write)
        started = subprocess.Popen(
            [sys.executable, "-c", STARTER, *map(str, pipes), program, *FLAGS, f"--user-data-dir={profile}"],
            pass_fds=pipes, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=_environment(profile),
        )  # fmt: skip
        os.close(to_read)
        os.close(from_write)
        try:
            yield Tab(to_write, from_read)
        finally:
            os.close(to_write)
            started.terminate()
            started.wait(ANSWER_SECONDS)
            os.close(from_read)


def _environment(home: str) -> dict[str, str]:
    return {**os.environ, "HOME": home, "TZ": "Europe/Berlin", "LANG": "C.UTF-8"}


def url_of(path: Path) -> str:
    return path.resolve().as_uri()


def middle(tab: Tab, selector: str) -> list[float]:
    """Return the centre of the first of these elements."""
    box = f"document.querySelector('{selector}').getBoundingClientRect()"
    place: list[float] = tab.run(f"(b => [b.x + b.width / 2, b.y + b.height / 2])({box})")
    return place
