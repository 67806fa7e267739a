"""The observability of a process: metrics, log lines, health.

log_lines.py           Lines of the log on their way to standard error, which may be a pipe that nobody reads.
logs.py                Structured logs to standard error: for people on a terminal, JSON lines for machines.
loop_watch.py          A watchdog of the event loop: how late it turns, whether it turns at all, and what it was at
                       when it did not.
metrics.py             What the process counts, for Prometheus.
metrics_endpoint.py    The HTTP endpoint: /metrics for Prometheus, /healthz (the event loop turns), /readyz (every
                       partition is served).
"""
