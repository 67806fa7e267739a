"""The cost of a process, as the kernel counts it: CPU seconds and memory. Linux only."""

import os
import subprocess
from pathlib import Path

TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def child_of(leash: subprocess.Popen[bytes]) -> int:
    """The pid of the command on a leash (`tests/brokers/child.py`)."""
    return int(Path(f"/proc/{leash.pid}/task/{leash.pid}/children").read_text(encoding="ascii"))


def cpu_seconds(pid: int) -> float:
    """The CPU time of all threads of the process, in user mode and in the kernel."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    user, system = int(fields[11]), int(fields[12])
    return (user + system) / TICKS_PER_S


def resident_bytes(pid: int) -> int:
    """The memory of the process."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    line = next(line for line in status.splitlines() if line.startswith("VmRSS:"))
    return int(line.split()[1]) * 1024
