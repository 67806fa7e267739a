"""Lowers the connection limit to what the open-file limit allows, once, at startup.

Without free file descriptors neither clients nor /healthz could connect, and nothing would show why; so the connection
limit must be reached first. If descriptors run out all the same, net/free_files.py reports it.
"""

import resource

import structlog

from muster.coordinator.settings.settings import Settings

log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)


def reserve_of(limit: int) -> int:
    """Return the number reserved for the event log, brokers, the metrics endpoint, clients about to be refused."""
    return min(1_200, max(64, limit // 4))


def connections_within(limit: int, *, each: int) -> int:
    """Return how many clients fit into `limit` open files, if each needs `each` of them; at least one."""
    return max(1, (limit - reserve_of(limit)) // each)


def within_open_files(settings: Settings) -> Settings:
    """Raise the soft limit of open files; return the settings with the connection limit that it allows."""
    limit = _raised_limit()
    each = 1 if settings.upstream is None else 2  # each client of a sidecar needs a connection to a broker, too
    fitting = connections_within(limit, each=each)
    if limit == resource.RLIM_INFINITY or fitting >= settings.connections_max:
        return settings
    log.warning(
        "serving fewer connections than --connections-max: the limit of open files is too low",
        connections_max=settings.connections_max,
        served=fitting,
        open_files_max=limit,
        way_out=f"allow {each * settings.connections_max + 1_200} (ulimit -n, LimitNOFILE=), or lower it",
    )
    return settings.model_copy(update={"connections_max": fitting})


def _raised_limit() -> int:
    """Raise the soft limit of open files to the hard one; return the resulting limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (OSError, ValueError):  # the system may have another limit below an unlimited one
        return soft
    return hard
