"""Several real `muster serve` processes that share the partitions of one event log in Kafka, as child processes.

Starts them, and waits until each serves its share.
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from urllib.error import HTTPError

from tests.brokers.broker import HOST, lasting_base, lasting_ports
from tests.muster_process import MusterProcess, running_muster
from tests.waiting import until_so

SESSION_MS: Final = 6_000
"""The shortest that brokers allow by default (group.min.session.timeout.ms)."""

SHARED_WITHIN_S: Final = 60.0
LAG: Final = "muster_standby_lag_seconds"


@contextmanager
def sharing_process(
    log: str,
    node_id: int,
    *,
    partitions: int,
    replication: int = 1,
    topics: Sequence[str] = (),
    more: Sequence[str] = (),
) -> Iterator[MusterProcess]:
    """One of them, while the block lasts; `more`: options."""
    options = ["--share-partitions", "--node-id", str(node_id), "--owner-session-timeout-ms", str(SESSION_MS)]
    options += ["--metrics", f"{HOST}:0", "--log-partitions", str(partitions), "--log-replication", str(replication)]
    with running_muster(log=log, topics=topics, options=[*options, *more]) as running:
        yield running


@contextmanager
def sharing_sidecar(
    upstream: str,
    log: str,
    node_id: int,
    *,
    secret: Path,
    partitions: int,
    replication: int = 1,
    options: Sequence[str] = (),
) -> Iterator[MusterProcess]:
    """Run a sidecar in front of these brokers. `secret`: the file that the sidecars share."""
    (port,), base_port = lasting_ports(1), lasting_base(upstream.count(",") + 1)
    sharing = ["--share-partitions", "--node-id", str(node_id), "--owner-session-timeout-ms", str(SESSION_MS)]
    sharing += ["--peer-listen", f"{HOST}:{port}", "--peer-secret-file", str(secret)]
    sharing += ["--log-partitions", str(partitions), "--log-replication", str(replication)]
    in_front = ["--upstream", upstream, "--broker-base-port", str(base_port)]
    with running_muster(log=log, options=[*in_front, *sharing, *options]) as running:
        yield running


def until_shared(*processes: MusterProcess, partitions: int) -> None:
    """Wait until these processes have all partitions among them, and each as many as the others."""

    def shared() -> bool:
        shares = [_share_of(each) for each in processes]
        whole = [number for share in shares for number in share or ()]
        even = {len(share or ()) for share in shares} == {partitions // len(processes)}
        return None not in shares and even and sorted(whole) == list(range(partitions))

    until_so(shared, lambda: [each.events("partitions shared")[-1:] for each in processes], within_s=SHARED_WITHIN_S)


def until_served(*processes: MusterProcess) -> None:
    """Wait until each process serves all partitions that it is to own."""

    def is_ready(process: MusterProcess) -> bool:
        try:
            process.asked("/readyz")
        except HTTPError:
            return False
        return True

    until_so(lambda: all(map(is_ready, processes)), within_s=SHARED_WITHIN_S)


def until_standing_by(process: MusterProcess, *, partitions: int) -> None:
    """Wait until this process follows so many partitions of others, and has read all that is there of them by now."""
    since_s = time.monotonic()

    def stands_by() -> bool:
        asked_s, reported = time.monotonic(), process.asked("/metrics")
        ready = f"muster_standby_partitions_ready {partitions}.0\n" in reported
        (behind_s,) = (line.split()[1] for line in reported.splitlines() if line.startswith(f"{LAG} "))
        # It looks at the ends once a second: what it knew before now does not count.
        return ready and "muster_standby_lag_records 0.0\n" in reported and float(behind_s) < asked_s - since_s

    until_so(stands_by, lambda: process.asked("/metrics"), within_s=SHARED_WITHIN_S)


def _share_of(process: MusterProcess) -> list[int] | None:
    """Return the partitions that the process is to own, from its last log line; None: some are still being moved."""
    reported = process.events("partitions shared")
    return None if not reported or reported[-1]["moving"] else reported[-1]["ours"]
