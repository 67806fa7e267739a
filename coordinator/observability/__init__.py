"""The observability of a process: metrics, log lines, health."""
