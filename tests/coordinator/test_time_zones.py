"""Printed times are in UTC, whatever the machine's time zone."""

import json
import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

ROOT = Path(__file__).parents[2]
PRINTED = """
import structlog
from muster.coordinator.observability.logs import configure_logs
from muster.events.log.base import Deposed
from muster.replay.text.times import instant, read_time

configure_logs("info", "json")
deposed = Deposed(0, 1)
deposed.name_successor("other:1", 0, shares=False)
read = read_time("1970-01-01T00:00:01", now_ms=0)
structlog.get_logger().info("x", instant=instant(0), read=read, deposed=str(deposed))
"""


def test_times_are_utc_in_another_zone() -> None:
    """Five and a half hours ahead: in log lines, in `muster replay`, and in errors."""
    before = datetime.now(UTC)
    env = {**os.environ, "TZ": "XST-5:30"}
    done = subprocess.run(
        [sys.executable, "-c", PRINTED], capture_output=True, text=True, check=True, cwd=ROOT, env=env
    )
    line = json.loads(done.stderr)
    assert (line["instant"], line["read"]) == ("1970-01-01T00:00:00.000Z", 1_000)
    assert " at 00:00:00 UTC " in line["deposed"]
    assert line["timestamp"].endswith("Z")
    assert abs(datetime.fromisoformat(line["timestamp"]) - before) < timedelta(hours=1)
