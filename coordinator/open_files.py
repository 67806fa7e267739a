"""How many connections the limit of open files allows, looked at once, at the start.

When no file can be opened, neither a client nor /healthz is let in, and nobody sees why: so the limit of connections
is made to be the one that is met.
"""

import resource

import structlog

from muster.coordinator.settings.settings import Settings

log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)


def reserve_of(limit: int) -> int:
    """What is kept for all else: the event log, brokers, the side door, and clients that are about to be refused."""
    return min(1_200, max(64, limit // 4))


def connections_within(limit: int, *, each: int) -> int:
    """How many clients fit into `limit` open files, with `each` for one of them; at least one."""
    return max(1, (limit - reserve_of(limit)) // each)


def within_open_files(settings: Settings) -> Settings:
    """The settings, with as many connections as the process may have open files; its soft limit is raised first."""
    limit = _raised_limit()
    each = 1 if settings.upstream is None else 2  # a client of a sidecar has a connection to a broker, too
    fitting = connections_within(limit, each=each)
    if limit == resource.RLIM_INFINITY or fitting >= settings.connections_max:
        return settings
    log.warning(
        "fewer connections are served than --connections-max: the limit of open files is too low",
        connections_max=settings.connections_max,
        served=fitting,
        open_files_max=limit,
        way_out=f"allow {each * settings.connections_max + 1_200} (ulimit -n, LimitNOFILE=), or lower it",
    )
    return settings.model_copy(update={"connections_max": fitting})


def _raised_limit() -> int:
    """The limit of open files, after an attempt to make it the hard one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (OSError, ValueError):  # where the system has another limit below an unlimited one
        return soft
    return hard
