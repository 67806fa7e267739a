"""The observability of a process: metrics, log lines, health.

group_metrics.py       Groups, members and requests that wait, counted when somebody asks.
log_lines.py           Lines of the log on their way to standard error, which may be a pipe that nobody reads.
logs.py                Structured logs to standard error: for people on a terminal, JSON lines for machines.
loop_watch.py          A watchdog of the event loop: how late it turns, whether it turns at all, and what it was at
                       when it did not.
metrics.py             What the process counts, for Prometheus.
status.py              What the process tells of itself at /status, for `muster status`.
process_metrics.py     The version, whether it is ready, and what the process uses of the machine.
metrics_endpoint.py    The HTTP endpoint: /metrics for Prometheus, /status, /healthz (the event loop turns), /readyz
                       (every partition is served).
standby_metrics.py     How far this process is behind the partitions that it follows.
"""
