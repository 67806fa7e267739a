"""`python -m tests.replay.report.picture` makes docs/report.png, the README's picture of a report, in a browser."""

import base64
import tempfile
from pathlib import Path
from typing import Final

import msgspec

from tests.judge.case import play
from tests.judge.scenarios import SCENARIOS
from tests.replay.report.browser import browser, middle, url_of
from tests.replay.report.told import document_of

SCENARIO: Final = "crash-in-deployment"
SEED: Final = 1
"""Return a group in which a process dies while others are being replaced."""
PICTURE: Final = Path(__file__).parents[3] / "docs" / "report.png"


def main() -> None:
    history = msgspec.structs.replace(play(SCENARIOS[SCENARIO], SEED).history, log="sqlite:///muster.db")
    with tempfile.TemporaryDirectory() as folder, browser() as tab:
        path = Path(folder, "report.html")
        path.write_text(document_of(history), encoding="utf-8")
        tab.size(1180, 960)
        tab.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "light"}])
        tab.open(url_of(path))
        tab.run("document.querySelector('article[data-kind=deployment] .show').click()")
        tab.run("document.activeElement.blur()")
        tab.run("scrollTo(0, 0)")
        tab.frame()
        crash = tab.run("[...document.querySelectorAll('article')].findIndex(each => each.dataset.kind === 'crash')")
        tab.mouse("mouseMoved", *middle(tab, f'[data-n="{crash}"]'))
        picture = tab.call("Page.captureScreenshot", format="png")["data"]
    PICTURE.write_bytes(base64.b64decode(picture))


if __name__ == "__main__":
    main()
