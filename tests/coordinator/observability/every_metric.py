"""Every metric that a process may have, in any mode: for the metrics page, the rules and the dashboard.

python -m tests.coordinator.observability.every_metric     rewrites the table of docs/metrics.md
"""

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from muster.coordinator.observability.group_metrics import GroupFigures, GroupMetrics
from muster.coordinator.observability.log_lines import LogLines
from muster.coordinator.observability.loop_watch import LoopWatch
from muster.coordinator.observability.metrics import REGISTRY, ServerMetrics
from muster.coordinator.observability.process_metrics import process_collectors
from muster.coordinator.observability.standby_metrics import StandbyFigures, StandbyMetrics
from muster.coordinator.peers.peer_metrics import LinkMetrics, PeerMetrics
from muster.coordinator.sidecar.relay.metrics import RelayMetrics
from muster.coordinator.upstream.shadow_census import ShadowCensus, ShadowMetrics

ROOT: Final = Path(__file__).parents[3]
PAGE: Final = ROOT / "docs" / "metrics.md"
TABLE: Final = re.compile(r"(?<=<!-- every metric -->\n).*(?=<!-- end -->)", re.DOTALL)
NO_FIGURES: Final = GroupFigures(
    groups={("Stable", "muster"): 0},
    members={("Stable", "muster"): 0},
    quarantined=0,
    partitions=0,
    log_partitions=0,
    parked={"JoinGroup": 0, "SyncGroup": 0},
    oldest_parked_ms=0,
)
LABELS: Final = {
    "muster_append_failures": "kind",
    "muster_group_generation": "group",
    "muster_group_members": "group, state",
    "muster_group_rebalances": "group, cause",
    "muster_groups_not_taken": "reason",
    "muster_joins_refused": "reason",
    "muster_partitions_lost": "reason",
    "muster_rebalance_phase_seconds": "phase",
    "muster_rebalance_seconds": "ended",
    "muster_requests": "api, version",
    "muster_takeover_phase_seconds": "phase",
}
"""Labels of metrics that have no series until something has happened."""
SUFFIX: Final = {"counter": "_total"}


def every_metric() -> Iterator[Metric]:
    """All of them, sorted by name."""
    found = [*asyncio.run(_collected())]
    yield from sorted(found, key=lambda metric: metric.name)


def every_name() -> set[str]:
    """The names of all series, as Prometheus sees them."""
    names = set()
    for metric in every_metric():
        if metric.type == "histogram":
            names |= {f"{metric.name}_{end}" for end in ("bucket", "count", "sum")}
        else:
            names.add(f"{metric.name}{SUFFIX.get(metric.type, '')}")
    return names


async def _collected() -> list[Metric]:
    collectors: list[Collector] = [
        ServerMetrics({}),
        GroupMetrics(lambda: NO_FIGURES),
        RelayMetrics(),
        LogLines(2),
        LoopWatch(),
        PeerMetrics(list),
        LinkMetrics(list, lambda: 0),
        StandbyMetrics(lambda: StandbyFigures(followed=0, ready=0, behind_max=0, oldest_ms=0)),
        ShadowMetrics(lambda: ShadowCensus(present=0, missing=())),
        *process_collectors("standalone", lambda: True),
    ]
    found = [*REGISTRY.collect()]
    for collector in collectors:
        found += collector.collect()
    return found


def table() -> str:
    """The table of the page."""
    rows = ["| Metric | Labels | What it is |", "|---|---|---|"]
    for metric in every_metric():
        labels = LABELS.get(metric.name) or ", ".join(_labels(metric))
        name = f"{metric.name}{SUFFIX.get(metric.type, '')}"
        kind = {"histogram": " (histogram)", "gauge": " (now)"}.get(metric.type, "")
        rows.append(f"| `{name}` | {labels} | {metric.documentation.rstrip('.')}{kind} |")
    return "\n".join(rows) + "\n"


def _labels(metric: Metric) -> list[str]:
    names: dict[str, None] = {}
    for sample in metric.samples:
        names |= dict.fromkeys(sample.labels)
    return [name for name in names if name != "le"]


if __name__ == "__main__":
    PAGE.write_text(TABLE.sub(lambda _: table(), PAGE.read_text(encoding="utf-8")), encoding="utf-8")
