"""The status that a process reports at /status, as JSON, for `muster status` and for programs.

Defines the format, which the command reads too, and limits how often it is computed. It is computed in the endpoint's
threads from copies of the event loop's tables, a few entries at a time; parts that do not exist yet report nothing.

Fields may be added but never change their meaning; `level` grows if that cannot be avoided.
"""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec

LEVEL: Final = 1
NAMED_MAX: Final = 100
"""The limit of groups named in each list; the total number is reported separately."""
CACHED_S: Final = 0.25
"""More frequent requests get the same report again."""


class OwnedStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A partition that this process serves. `lease_left_ms`: how long it may respond; None: it needs no lease.

    `read_only`: writes are deferred, because a former owner may still respond. `append_waits_ms`: how long the current
    append has been waiting for its acknowledgement.
    """

    partition: int
    epoch: int
    lease_left_ms: int | None = None
    read_only: bool = msgspec.field(default=False, name="puts_off")
    groups: int = 0
    members: int = 0
    parked: int = 0
    append_waits_ms: int = 0


class StandbyStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A partition that this process follows, for a fast takeover. The lag is that of the records it has not read."""

    partition: int
    lag_records: int | None = None
    lag_ms: int | None = None


class ElsewhereStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A partition whose owner is another process, as far as this one knows."""

    partition: int
    node_id: int
    address: str


class WaitingPartition(msgspec.Struct, frozen=True, kw_only=True):
    """A partition that is assigned to this process but not served, and why."""

    partition: int
    reason: str


class PeerStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Another process of the event log. `connected`: whether the connection that detects its end is established."""

    node_id: int
    address: str
    connected: bool


class LinkStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Another process that owns partitions. `reached`: whether requests can be forwarded; `error`: why they cannot."""

    node_id: int
    address: str
    reached: bool
    error: str = ""


class LinksStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The connections on which a sidecar forwards requests to the owners of their groups."""

    to: Sequence[LinkStatus] = ()
    no_owner_reached_ms: int = 0
    """How long no owner of any partition has been reachable; 0 while one is."""


class QuarantinedStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A group that is not served, because one of its records cannot be read."""

    group_id: str
    partition: int
    reason: str
    way_out: str


class MissingShadowStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A group whose shadow is not in the cluster upstream; `error`: the last one, if any."""

    group_id: str
    error: str


class UnassignedStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Partitions of a topic that a Stable group subscribes to, but that no member is assigned.

    `numbers`: the partitions, human-readable; `partitions`: their number; `unassigned_ms`: for how long.
    """

    group_id: str
    topic: str
    partitions: int
    numbers: str
    unassigned_ms: int
    way_out: str


class UpstreamGroupStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A group that clients joined here in the last minutes, but that upstream coordinates."""

    group_id: str
    reason: str
    way_out: str


class ShadowStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The shadows in the cluster upstream; `missing` names some of `missing_count`."""

    present: int
    missing_count: int
    missing: Sequence[MissingShadowStatus] = ()


class OwnershipStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The partitions and groups that this process owns, or is to own.

    `quarantined` names some of `quarantined_count`.
    """

    owner: str = ""
    log_identity: str = ""
    log_partitions: int = 0
    """0: the log is not open yet."""
    owned: Sequence[OwnedStatus] = ()
    waiting: Sequence[WaitingPartition] = ()
    standbys: Sequence[StandbyStatus] = ()
    quarantined: Sequence[QuarantinedStatus] = ()
    quarantined_count: int = 0
    groups: Mapping[str, Mapping[str, int]] = {}
    """Number of groups by coordinator, then by state."""
    members: Mapping[str, int] = {}
    """Number of their members by coordinator."""
    oldest_parked_ms: int = 0
    oldest_parked_group: str = ""
    """The group of the member that has waited for `oldest_parked_ms`."""


class ProcessStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The complete status. Durations are in ms. `not_ready`, `not_well`: as in /readyz and /healthz; None if it is."""

    level: int = LEVEL
    version: str
    mode: str
    node_id: int | None
    listen: str
    log: str
    upstream: str | None
    uptime_ms: int
    not_ready: str | None
    not_well: str | None
    log_flaws: Sequence[str] = ()
    """The flaws of the event topic, each with what to do about it."""
    unassigned: Sequence[UnassignedStatus] = ()
    """Some of them; `unassigned_count` counts all topics of all groups."""
    unassigned_count: int = 0
    upstream_groups: Sequence[UpstreamGroupStatus] = msgspec.field(default=(), name="not_taken")
    """Some of them."""
    ownership: OwnershipStatus = OwnershipStatus()
    elsewhere: Sequence[ElsewhereStatus] = ()
    peers: Sequence[PeerStatus] = ()
    links: LinksStatus = LinksStatus()
    shadows: ShadowStatus | None = None


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """The facts that do not change while the process runs."""

    version: str
    mode: str
    node_id: int | None
    listen: str
    log: str
    upstream: str | None


class StatusParts:
    """The parts of a process that contribute to its status; each is set once it exists. All are thread-safe."""

    def __init__(self) -> None:
        self.ownership: Callable[[], OwnershipStatus] = OwnershipStatus
        self.log_flaws: Callable[[], Sequence[str]] = tuple
        self.unassigned: Callable[[], Sequence[UnassignedStatus]] = tuple
        self.upstream_groups: Callable[[], Sequence[UpstreamGroupStatus]] = tuple
        self.elsewhere: Callable[[], Sequence[ElsewhereStatus]] = tuple
        self.peers: Callable[[], Sequence[PeerStatus]] = tuple
        self.links: Callable[[], LinksStatus] = LinksStatus
        self.shadows: Callable[[], ShadowStatus | None] = lambda: None


class StatusReport:
    """The report, recomputed on request if it is older than `CACHED_S`. Thread-safe."""

    def __init__(
        self,
        identity: Identity,
        parts: StatusParts,
        *,
        not_ready: Callable[[], str | None],
        not_well: Callable[[], str | None],
    ) -> None:
        self._identity = identity
        self._parts = parts
        self._not_ready = not_ready
        self._not_well = not_well
        self._began_s = time.monotonic()
        self._lock = threading.Lock()
        self._made_s = float("-inf")
        self._made = b""

    def json(self) -> bytes:
        """Return the report."""
        with self._lock:  # concurrent callers get the report that is being computed
            now_s = time.monotonic()
            if now_s - self._made_s >= CACHED_S:
                self._made = msgspec.json.encode(self._report(now_s))
                self._made_s = time.monotonic()
            return self._made

    def _report(self, now_s: float) -> ProcessStatus:
        identity, unassigned = self._identity, self._parts.unassigned()
        return ProcessStatus(
            version=identity.version,
            mode=identity.mode,
            node_id=identity.node_id,
            listen=identity.listen,
            log=identity.log,
            upstream=identity.upstream,
            uptime_ms=int((now_s - self._began_s) * 1000),
            not_ready=self._not_ready(),
            not_well=self._not_well(),
            log_flaws=self._parts.log_flaws(),
            unassigned=unassigned[:NAMED_MAX],
            unassigned_count=len(unassigned),
            upstream_groups=self._parts.upstream_groups(),
            ownership=self._parts.ownership(),
            elsewhere=self._parts.elsewhere(),
            peers=self._parts.peers(),
            links=self._parts.links(),
            shadows=self._parts.shadows(),
        )
